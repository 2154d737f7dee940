"""Which way of replaying launches a device has."""

from __future__ import annotations

import pyopencl as cl

from .command_buffers import find_command_buffers
from .recordable_queues import LACKING, find_recordable_queues
from .replay import Replay


def find_replay(device: cl.Device) -> Replay | str:
    """How to record and replay launches on `device`, or the reason why they are enqueued one by one.

    Command buffers, else recordable queues.
    """
    buffers = find_command_buffers(device)
    if not isinstance(buffers, str):
        return buffers
    queues = find_recordable_queues(device)
    return buffers if queues == LACKING else queues
