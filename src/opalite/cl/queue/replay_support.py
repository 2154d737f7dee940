"""Selection of a device's replay extension."""

from __future__ import annotations

import pyopencl as cl

from .command_buffers import find_command_buffers
from .recordable_queues import LACKING, find_recordable_queues
from .replay import Replay


def find_replay(device: cl.Device) -> Replay | str:
    """The replay extension of `device`, command buffers before recordable queues, or the reason why it has none."""
    buffers = find_command_buffers(device)
    if not isinstance(buffers, str):
        return buffers
    queues = find_recordable_queues(device)
    return buffers if queues == LACKING else queues
