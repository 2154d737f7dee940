"""Replay: interface of extensions that record launches once and enqueue them again by a single call.

docs/running.md has the gains; `DeviceInfo.replay_pays` decides by them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pyopencl as cl

from .prepared_launch import PreparedLaunch


class RecordedLaunches(ABC):
    """Launches recorded with their current arguments. Later changes of arguments need `update`."""

    can_update: ClassVar[bool] = False
    """Whether `update` can change arguments."""

    @abstractmethod
    def run(self) -> None:
        """Enqueue the recording without waiting. Raises DeviceError that names the launches if the driver refuses."""

    def update(self) -> bool:
        """Adopt the launches' current arguments; False if the launches must be recorded again."""
        return False


class Replay(ABC):
    """A device's extension for replay; str() is its name.

    min_launches: number of launches from which replay pays. noun: name of a recording in reports.
    """

    min_launches: ClassVar[int]
    noun: ClassVar[str]

    @abstractmethod
    def record(self, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str) -> RecordedLaunches:
        """Record non-empty `launches` for replay on `queue`. Raises DeviceError if the driver refuses one."""
