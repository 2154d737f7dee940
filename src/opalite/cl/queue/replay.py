"""Replay: launches recorded once and enqueued again by a single call, by whichever extension a device has for it.

What it gains is in docs/running.md; `DeviceInfo.replay_pays` decides by it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pyopencl as cl

if TYPE_CHECKING:
    from .prepared_launch import PreparedLaunch


class RecordedLaunches(ABC):
    """Launches recorded with their present arguments; later changes of arguments do not reach it by themselves."""

    can_update: ClassVar[bool] = False
    """Whether `update` may give it other arguments."""

    @abstractmethod
    def run(self) -> None:
        """Enqueue everything recorded; does not wait for it. DeviceError names the launches if the driver refuses."""

    def update(self) -> bool:
        """Take the arguments that the launches have now; False where that needs another recording."""
        return False


class Replay(ABC):
    """A device's way to replay. str() names the extension.

    least: launches from which on a replay pays. noun: what is replayed.
    """

    least: ClassVar[int]
    noun: ClassVar[str]

    @abstractmethod
    def record(self, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str) -> RecordedLaunches:
        """`launches`, none of them empty, to be replayed on `queue`. DeviceError if the driver refuses one."""
