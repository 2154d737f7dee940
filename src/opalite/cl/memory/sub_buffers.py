"""SubBufferBlock: releases sub-buffers in the reverse order of their creation, a workaround of a driver bug.

NVIDIA's driver (580.159) crashes if the older of two overlapping sub-buffers is released first. So a block holds a
reference to each sub-buffer and releases them, newest first, after the last user has dropped its reference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyopencl as cl

from ..device.fork_guard import keep_forever, keep_in_forked_children

_released: list[list[SubBufferBlock]] = [[], []]  # unused blocks: at the last allocation, and since then


class SubBufferBlock:
    """A buffer and its sub-buffers."""

    def __init__(self, buffer: cl.Buffer) -> None:
        self.buffer = buffer
        self._held: list[cl.Buffer] = []
        keep_in_forked_children(self)

    def cut(self, offset: int, nbytes: int) -> cl.Buffer:
        """The range [offset, offset + nbytes) as a buffer, which keeps the block alive. Raises pyopencl's errors."""
        made = self.buffer.get_sub_region(offset, nbytes)
        self._held.append(cl.Buffer.from_int_ptr(made.int_ptr, True))
        # pyopencl drops an object's attributes before it releases the object: the block must outlive that.
        made.block = _BlockReference(self)
        return made

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            # At interpreter exit sub-buffers go in any order. The system frees the memory.
            keep_forever(self._held)
            return
        while self._held:
            self._held.pop().release()


class _BlockReference:
    """Moves its block to `_released` when a sub-buffer is about to be released."""

    __slots__ = ("block",)

    def __init__(self, block: SubBufferBlock) -> None:
        self.block = block

    def __del__(self, released: list[list[SubBufferBlock]] = _released) -> None:
        released[1].append(self.block)


def drop_released_blocks() -> None:
    """Free the blocks that were unused at the last call. Every allocation calls this."""
    _released[0], _released[1] = _released[1], []
