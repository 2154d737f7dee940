"""Device timestamps of one launch."""

from __future__ import annotations

from typing import Any

from ...lazy_dataclass import dataclass
from ..device.driver_errors import cl_errors


@dataclass(frozen=True)
class LaunchTimes:
    """Profiling times in seconds on one clock: enqueued, submitted, started, ended."""

    queued: float
    submitted: float
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Run time of the launch."""
        return self.end - self.start

    def shifted(self, offset: float) -> LaunchTimes:
        """The times on a clock that is `offset` seconds ahead."""
        return LaunchTimes(self.queued + offset, self.submitted + offset, self.start + offset, self.end + offset)


def wait_for(event: Any, device: str) -> None:
    """Wait until `event` is complete. Raises DeviceError if the launch failed."""
    with cl_errors("Waiting for a launch", device):
        event.wait()


def read_times(event: Any, device: str) -> LaunchTimes:
    """Times of a finished event of a profiling queue. Raises DeviceError if the driver has none."""
    with cl_errors("Reading the times of a launch", device):
        p = event.profile
        return LaunchTimes(p.queued * 1e-9, p.submit * 1e-9, p.start * 1e-9, p.end * 1e-9)
