"""GrowableDeviceTensor: a tensor on a device at the beginning of memory for more of it along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.constants.int8_rows import TAIL, from_byte_rows, to_byte_rows
from .device_tensor import DeviceTensor
from .host_device_copies import copy_lines

if TYPE_CHECKING:
    from ..runtime import Runtime

Array = np.ndarray[Any, Any]


class GrowableDeviceTensor:
    """`length` positions of `capacity` along `axis` count; `shape` is with those. Nothing may run on it meanwhile.

    dtype: of its arrays. stored: of its memory: float16 where a program keeps float32 in halves, int8 where rows of
    floats are kept as ir/constants/int8_rows.py has them. is_own: the memory is its own, so that it may be stored
    otherwise.
    """

    def __init__(
        self,
        rt: Runtime,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        axis: int,
        capacity: int,
        length: int = 0,
        stored: np.dtype[Any] | None = None,
    ) -> None:
        """shape: its size along the axis does not count. DeviceMemoryError if there is no room."""
        self.rt, self.dtype, self.axis, self.capacity, self.length = rt, dtype, axis, capacity, length
        self.stored, self.is_own = dtype if stored is None else stored, True
        self._sizes = tuple(shape)
        self.tensor = DeviceTensor(rt, self._lying(capacity), self.stored)

    @classmethod
    def wrap_full(cls, tensor: DeviceTensor) -> GrowableDeviceTensor:
        """`tensor` itself, all of it."""
        made = cls.__new__(cls)
        made.rt, made.dtype, made.axis, made.tensor = tensor.rt, tensor.dtype, max(tensor.ndim - 2, 0), tensor
        made.stored, made.is_own = tensor.dtype, False
        made._sizes = tensor.shape
        made.capacity = made.length = tensor.shape[made.axis]
        return made

    def _with(self, size: int) -> tuple[int, ...]:
        return (*self._sizes[: self.axis], size, *self._sizes[self.axis + 1 :])

    def _lying(self, size: int) -> tuple[int, ...]:
        """The shape in memory of so many positions."""
        shape = self._with(size)
        return (*shape[:-1], shape[-1] + TAIL) if self.is_int8 else shape

    @property
    def is_int8(self) -> bool:
        """Whether its memory holds rows of floats as int8."""
        return self.stored == np.int8 and self.dtype.kind == "f"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what counts."""
        return self._with(self.length)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.tensor.nbytes

    @property
    def _line(self) -> int:
        """Bytes of a position with all that lies behind the axis."""
        return math.prod(self._lying(1)[self.axis + 1 :]) * self.stored.itemsize

    def store(self, stored: np.dtype[Any]) -> None:
        """Have it lie in memory as `stored`, what counts with it. DeviceMemoryError if there is no room, OverflowError,
        and nothing has changed, where finite values would become infinite."""
        if stored == self.stored:
            return
        made = GrowableDeviceTensor(self.rt, self._sizes, self.dtype, self.axis, self.capacity, stored=stored)
        if self.length:
            values = self.numpy()
            with np.errstate(over="ignore"):
                made.write(values)
                if (np.isinf(values.astype(stored)) & ~np.isinf(values)).any():
                    raise OverflowError(f"{stored} does not hold the values of a cache")
        self.stored, self.tensor = stored, made.tensor

    def reuse_as(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, capacity: int) -> bool:
        """Whether it is memory of its own for such a tensor, none of which counts from now on."""
        sizes = (*shape[:axis], *shape[axis + 1 :])
        own = (*self._sizes[: self.axis], *self._sizes[self.axis + 1 :])
        fits = self.is_own and (own, self.dtype, self.axis, self.capacity) == (sizes, dtype, axis, capacity)
        if fits:
            self.length = 0
        return fits

    def follow(self, source: GrowableDeviceTensor) -> None:
        """Take the positions that have been added to `source` since this was copied of it."""
        first, self.length = self.length, source.length
        self._fill(source, first)

    def _fill(self, source: GrowableDeviceTensor, first: int = 0) -> None:
        """Take what counts of `source`: where the host has both, by the host, which waits for no command; from position
        `first` on."""
        kept = (slice(None),) * self.axis + (slice(first, self.length),)
        views = [t.staging.shared(self.stored, t.shape) for t in (self.tensor, source.tensor)]
        if views[0] is not None and views[1] is not None:
            views[0][kept] = views[1][kept]
            return
        lines = math.prod(self._sizes[: self.axis])
        sizes = self.length * self._line, source.capacity * self._line, self.capacity * self._line
        copy_lines(self.rt.queue, source.tensor.buffer, self.tensor.buffer, lines, *sizes, self.rt.info.name)
        self.rt.finish()

    def copy(self, capacity: int | None = None) -> GrowableDeviceTensor:
        """The same in memory of its own, perhaps of another capacity."""
        size = self.capacity if capacity is None else capacity
        made = GrowableDeviceTensor(self.rt, self._sizes, self.dtype, self.axis, size, self.length, self.stored)
        made._fill(self)
        return made

    def picked(self, indices: Sequence[int], batch: int) -> GrowableDeviceTensor:
        """Entries `indices` along the axis `batch`, in memory of its own."""
        sizes = tuple(len(indices) if i == batch else d for i, d in enumerate(self._sizes))
        made = GrowableDeviceTensor(self.rt, sizes, self.dtype, self.axis, self.capacity, self.length, self.stored)
        made._lay(np.take(self._raw(), indices, batch))
        return made

    def _raw(self) -> Array:
        """What counts as it lies in memory, an array that may be that memory."""
        kept = (slice(None),) * self.axis + (slice(self.length),)
        shared = self.tensor.staging.shared(self.stored, self.tensor.shape)
        found: Array = (self.tensor.numpy() if shared is None else shared)[kept]
        return found

    def numpy(self) -> Array:
        """What counts, as an array of its own."""
        raw = self._raw()
        return from_byte_rows(raw, self.dtype) if self.is_int8 else raw.astype(self.dtype, order="C")

    def write(self, array: Array) -> None:
        """Take the contents of `array`, as many positions as there are room for at most."""
        self._lay(to_byte_rows(array) if self.is_int8 else array)

    def _lay(self, array: Array) -> None:
        """Take contents that are as memory holds them."""
        self.length = array.shape[self.axis]
        kept = (slice(None),) * self.axis + (slice(self.length),)
        shared = self.tensor.staging.shared(self.stored, self.tensor.shape)
        if shared is not None:
            shared[kept] = array
            return
        whole = np.zeros(self.tensor.shape, self.stored)
        whole[kept] = array
        self.tensor.write(whole)
