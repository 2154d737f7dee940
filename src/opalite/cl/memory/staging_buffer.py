"""StagingBuffer: device memory of an input or output, zero-copy or mapped where the device allows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from ..device.fork_guard import check_fork, keep_in_forked_children
from ..runtime import Runtime
from .host_device_copies import aligned_bytes
from .inline_upload import InlineUpload

Array = np.ndarray[Any, Any]


class StagingBuffer:
    """A device buffer of `nbytes` to which arrays are written and from which they are read.

    buffer: the cl.Buffer, as kernel argument. device_address: of the buffer in kernels, once queried. The caller
    ensures that no enqueued launch uses the buffer during a transfer.
    """

    __slots__ = (
        *("__weakref__", "_content", "_has_other_writers", "_host", "_maps", "_rt"),
        *("buffer", "device_address", "nbytes"),
    )

    def __init__(self, rt: Runtime, nbytes: int, buffer: cl.Buffer | None = None) -> None:
        """Allocate, or use `buffer`. Raises DeviceMemoryError if the device is full."""
        check_fork()
        keep_in_forked_children(self)
        self._rt = rt
        self._content: Array | None = None  # the last array written, if it is immutable
        self._has_other_writers = buffer is not None
        self._host: Array | None = None
        self.nbytes = nbytes
        self.device_address: int | None = None
        if buffer is None and nbytes and rt.shares_memory:
            self._host = aligned_bytes(nbytes)
            buffer = rt.allocator.wrapped(self._host, writable=True)
            if buffer is None:
                self._host = None
        # An integrated GPU: a write to mapped memory is not copied again.
        self._maps = buffer is None and nbytes > 0 and rt.maps_memory
        self.buffer = rt.allocate(nbytes, mapped=self._maps) if buffer is None else buffer

    @property
    def address(self) -> int | None:
        """Host address of the memory; None unless host and device share it."""
        return None if self._host is None else int(self._host.ctypes.data)

    def write(
        self,
        array: Any,
        dtype: np.dtype[Any],
        queue: cl.CommandQueue | None = None,
        uploads: InlineUpload | None = None,
        through: Array | None = None,
    ) -> Any:
        """Store `array` as `dtype`, row-major. The caller keeps the result until the queue has finished.

        An immutable array that is still stored is skipped. uploads: carries small arrays. through: bytes of pinned
        memory, which the device reads faster, and which no transfer uses.
        """
        source = np.asarray(array)
        if source.size == 0 or source is self._content:
            return None
        self._content = None if self._has_other_writers or source.flags.writeable or source.base is not None else source
        if self._maps:
            self._rt.write_mapped(self.buffer, source, dtype, queue)
            return None
        if self._host is None:
            if through is None:
                stored = np.ascontiguousarray(source, dtype)
            else:
                stored = through[: source.size * dtype.itemsize].view(dtype).reshape(source.shape)
                np.copyto(stored, source, casting="unsafe")
            if uploads is not None and uploads.accepts(stored.nbytes):
                uploads.add_host(self.buffer, stored)
                return None
            return self._rt.write(self.buffer, stored, wait=False, queue=queue)
        self._rt.counters.transfers += 1
        np.copyto(
            self._host[: source.size * dtype.itemsize].view(dtype).reshape(source.shape), source, casting="unsafe"
        )
        return None

    def copy_from(self, source: StagingBuffer, nbytes: int, uploads: InlineUpload | None = None) -> None:
        """Copy the first `nbytes` bytes of `source`, on the queue or by `uploads`."""
        self._content = None
        if uploads is not None and uploads.accepts(nbytes):
            uploads.add_device(source.buffer, self.buffer, nbytes)
            return
        self._rt.copy(source.buffer, self.buffer, nbytes)

    def shared(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Array | None:
        """A row-major view of the memory; None if it is empty or not shared between host and device."""
        nbytes = math.prod(shape) * dtype.itemsize
        if self._host is None or not nbytes:
            return None
        self._content, self._has_other_writers = None, True
        return self._host[:nbytes].view(dtype).reshape(tuple(shape))

    def read(self, array: Array, queue: cl.CommandQueue | None = None) -> Any:
        """Copy the buffer to C-contiguous `array`. The caller keeps the returned event until the queue has finished."""
        if array.size == 0:
            return None
        if self._maps:
            self._rt.read_mapped(self.buffer, array, queue)
            return None
        if self._host is None:
            return self._rt.read(self.buffer, array, wait=False, queue=queue)
        self._rt.counters.transfers += 1
        np.copyto(array, self._host[: array.nbytes].view(array.dtype).reshape(array.shape))
        return None
