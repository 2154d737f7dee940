"""Sub-buffers that are released in an order that drivers survive.

NVIDIA's driver (580.159) crashes if of two overlapping sub-buffers the older one is released while the newer lives.
So a Block keeps a reference of its own to each sub-buffer and releases them, the newest first, when the last one that
was given out is gone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyopencl as cl

from ..device.fork_guard import keep_forever, keep_in_forked_children

_leaving: list[list[SubBufferBlock]] = [[], []]  # blocks whose sub-buffers are gone: at the last allocation, and since


class SubBufferBlock:
    """A buffer and the sub-buffers cut from it."""

    def __init__(self, buffer: cl.Buffer) -> None:
        self.buffer = buffer
        self._held: list[cl.Buffer] = []
        keep_in_forked_children(self)

    def cut(self, offset: int, nbytes: int) -> cl.Buffer:
        """The region [offset, offset + nbytes) as a buffer, which keeps the block alive. Raises pyopencl's errors."""
        made = self.buffer.get_sub_region(offset, nbytes)
        self._held.append(cl.Buffer.from_int_ptr(made.int_ptr, True))
        # pyopencl drops an object's attributes before it releases the object: the block must not go in between.
        made.keeps = _Hold(self)
        return made

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            # Sub-buffers go in any order while Python ends. The process gives the memory back.
            keep_forever(self._held)
            return
        while self._held:
            self._held.pop().release()


class _Hold:
    """Passes its block on to `_leaving` when a sub-buffer is about to be released."""

    __slots__ = ("block",)

    def __init__(self, block: SubBufferBlock) -> None:
        self.block = block

    def __del__(self, leaving: list[list[SubBufferBlock]] = _leaving) -> None:
        leaving[1].append(self.block)


def drop_released_blocks() -> None:
    """Let go of blocks that were left before the last call. Every allocation calls this."""
    _leaving[0], _leaving[1] = _leaving[1], []
