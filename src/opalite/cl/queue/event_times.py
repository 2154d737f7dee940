"""Times of one launch, as the device counted them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..device.driver_errors import cl_errors


@dataclass(frozen=True)
class LaunchTimes:
    """Seconds on the device's clock: enqueued by the host, submitted to the device, started, ended."""

    queued: float
    submitted: float
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Time the launch ran."""
        return self.end - self.start


def wait_for(event: Any, device: str) -> None:
    """Return when `event` is complete. DeviceError if the launch failed."""
    with cl_errors("Waiting for a launch", device):
        event.wait()


def read_times(event: Any, device: str) -> LaunchTimes:
    """Times of a finished event from a profiling queue. DeviceError if the driver kept none."""
    with cl_errors("Reading the times of a launch", device):
        p = event.profile
        return LaunchTimes(p.queued * 1e-9, p.submit * 1e-9, p.start * 1e-9, p.end * 1e-9)
