"""DeviceTensor: an array that stays in device memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from ...errors import DeviceError
from ..device.driver_errors import cl_errors
from ..device.fork_guard import check_fork
from ..runtime import Runtime
from .staging_buffer import StagingBuffer

Array = np.ndarray[Any, Any]


class DeviceTensor:
    """A row-major array of `shape` and `dtype` in device memory, for the sessions of one runtime.

    NumPy functions accept it, at the cost of a download.
    """

    __slots__ = ("dtype", "rt", "shape", "staging")

    def __init__(
        self, rt: Runtime, shape: Sequence[int], dtype: np.dtype[Any], buffer: cl.Buffer | None = None
    ) -> None:
        """Allocate, or use `buffer`. Raises DeviceMemoryError if the device is full."""
        self.rt = rt
        self.shape = tuple(int(d) for d in shape)
        self.dtype = dtype
        self.staging = StagingBuffer(rt, self.nbytes, buffer)

    @classmethod
    def view_of(cls, rt: Runtime, staging: StagingBuffer, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceTensor:
        """A tensor over an existing StagingBuffer, valid until the StagingBuffer is reused."""
        tensor = cls.__new__(cls)
        tensor.rt, tensor.shape, tensor.dtype, tensor.staging = rt, tuple(shape), dtype, staging
        return tensor

    @property
    def buffer(self) -> cl.Buffer:
        """The cl.Buffer, as kernel argument."""
        return self.staging.buffer

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * int(self.dtype.itemsize)

    def write(self, array: Any) -> None:
        """Store `array` of equal shape, and wait.

        With a transfer queue, launches continue meanwhile; running launches must not use this tensor.
        """
        self._transfer(lambda: self.staging.write(array, self.dtype, self.rt.transfer_queue))

    def copy_from(self, other: DeviceTensor) -> None:
        """Enqueue a copy of `other`, of equal size and runtime, into this tensor."""
        self.rt.copy(other.buffer, self.buffer, self.nbytes)

    def numpy(self) -> Array:
        """Download the contents into a new array; running launches must not write this tensor."""
        array: Array = np.empty(self.shape, self.dtype)
        self._transfer(lambda: self.staging.read(array, self.rt.transfer_queue))
        return array

    def _transfer(self, enqueue: Callable[[], Any]) -> None:
        check_fork()
        rt = self.rt
        if rt.transfer_queue is rt.queue:
            rt.finish()
        pending = enqueue()
        with cl_errors("Waiting for a transfer", rt.info.title):
            rt.transfer_queue.finish()
        del pending

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)


def wrap_handle(rt: Runtime, handle: int, nbytes: int) -> cl.Buffer:
    """Wrap the cl_mem `handle` as a buffer. Raises DeviceError if the buffer is too small or of another context."""
    with cl_errors(f"Looking at the memory object {handle:#x}", rt.info.title):
        buffer = cl.Buffer.from_int_ptr(handle, True)
        if buffer.context != rt.context:
            raise DeviceError(
                f"memory object {handle:#x} belongs to another OpenCL context than {rt.info.title}'s: "
                "make it on the context of this session"
            )
        if buffer.size < nbytes:
            raise DeviceError(f"memory object {handle:#x} has {buffer.size} bytes, {nbytes} are needed")
    return buffer
