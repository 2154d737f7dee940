"""GrowableDeviceTensor: a device tensor with spare capacity along one axis, such as a KV cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.constants.int8_rows import TAIL, from_byte_rows, to_byte_rows
from ..runtime import Runtime
from .device_tensor import DeviceTensor

Array = np.ndarray[Any, Any]


class GrowableDeviceTensor:
    """A tensor with `length` valid positions of `capacity` along `axis`. No launch may use it during its methods.

    shape: with the valid length. dtype: of arrays read and written. stored: of the device memory: float16 for float32
    kept in half precision, int8 for quantized rows (ir/constants/int8_rows.py). owns_memory: the memory was allocated
    here, so it may be converted. is_ragged: sequences have positions of their own, so that unused ones, which may be
    multiplied by zero, are zeros.
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
        is_ragged: bool = False,
    ) -> None:
        """shape: the size along `axis` is ignored. Raises DeviceMemoryError if the device is full."""
        self.rt, self.dtype, self.axis, self.capacity, self.length = rt, dtype, axis, capacity, length
        self.stored, self.owns_memory = dtype if stored is None else stored, True
        self._sizes, self.is_ragged = tuple(shape), is_ragged
        self.tensor = DeviceTensor(rt, self._stored_shape(capacity), self.stored)
        if is_ragged:
            rt.fill(self.tensor.buffer, 0, self.tensor.nbytes)
            rt.finish()

    @classmethod
    def wrap_full(cls, tensor: DeviceTensor) -> GrowableDeviceTensor:
        """Wrap a full tensor, without copy or spare capacity."""
        made = cls.__new__(cls)
        made.rt, made.dtype, made.axis, made.tensor = tensor.rt, tensor.dtype, max(tensor.ndim - 2, 0), tensor
        made.stored, made.owns_memory, made.is_ragged = tensor.dtype, False, False
        made._sizes = tensor.shape
        made.capacity = made.length = tensor.shape[made.axis]
        return made

    def shape_at(self, length: int) -> tuple[int, ...]:
        """Shape with `length` positions."""
        return (*self._sizes[: self.axis], length, *self._sizes[self.axis + 1 :])

    def _stored_shape(self, size: int) -> tuple[int, ...]:
        """Shape of the device memory for `size` positions."""
        shape = self.shape_at(size)
        return (*shape[:-1], shape[-1] + TAIL) if self.is_int8 else shape

    @property
    def is_int8(self) -> bool:
        """Return whether the memory holds floats as int8 rows."""
        return self.stored == np.int8 and self.dtype.kind == "f"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the valid part."""
        return self.shape_at(self.length)

    @property
    def nbytes(self) -> int:
        """Allocated bytes."""
        return self.tensor.nbytes

    @property
    def _position_bytes(self) -> int:
        """Bytes of one position along the axis."""
        return math.prod(self._stored_shape(1)[self.axis + 1 :]) * self.stored.itemsize

    def convert(self, stored: np.dtype[Any]) -> None:
        """Convert the memory to dtype `stored`.

        Raises DeviceMemoryError if the device is full, and OverflowError, without a change, if a finite value would
        become infinite.
        """
        if stored == self.stored:
            return
        made = GrowableDeviceTensor(
            self.rt, self._sizes, self.dtype, self.axis, self.capacity, stored=stored, is_ragged=self.is_ragged
        )
        if self.length:
            values = self.numpy()
            with np.errstate(over="ignore"):
                made.write(values)
                if (np.isinf(values.astype(stored)) & ~np.isinf(values)).any():
                    raise OverflowError(f"{stored} does not hold the values of a cache")
        self.stored, self.tensor = stored, made.tensor

    def reuse_as(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, capacity: int) -> bool:
        """Empty the tensor for reuse if it owns its memory and has these properties; returns whether it does."""
        sizes = (*shape[:axis], *shape[axis + 1 :])
        own = (*self._sizes[: self.axis], *self._sizes[self.axis + 1 :])
        fits = self.owns_memory and (own, self.dtype, self.axis, self.capacity) == (sizes, dtype, axis, capacity)
        if fits:
            self.length = 0
        return fits

    def append_from(self, source: GrowableDeviceTensor) -> None:
        """Append the positions added to `source` since this tensor was copied from it."""
        first, self.length = self.length, source.length
        self._fill(source, first)

    def _fill(self, source: GrowableDeviceTensor, first: int = 0) -> None:
        """Copy the positions of `source` from `first`: by the host if both are host-accessible, else on the queue."""
        valid = (slice(None),) * self.axis + (slice(first, self.length),)
        views = [t.staging.shared(self.stored, t.shape) for t in (self.tensor, source.tensor)]
        if views[0] is not None and views[1] is not None:
            views[0][valid] = views[1][valid]
            return
        size = self._position_bytes
        source.copy_positions(first, self.tensor.buffer, first * size, self.capacity * size)
        self.rt.finish()

    def copy(self, capacity: int | None = None) -> GrowableDeviceTensor:
        """A copy, by default with the same capacity."""
        size = self.capacity if capacity is None else capacity
        made = GrowableDeviceTensor(
            self.rt, self._sizes, self.dtype, self.axis, size, self.length, self.stored, self.is_ragged
        )
        made._fill(self)
        return made

    def empty_like(self, count: int, batch: int, length: int, capacity: int) -> GrowableDeviceTensor:
        """A tensor of zeros of the same kind, with `count` entries along the axis `batch`."""
        sizes = tuple(count if i == batch else d for i, d in enumerate(self._sizes))
        return GrowableDeviceTensor(self.rt, sizes, self.dtype, self.axis, capacity, length, self.stored, True)

    def copy_entry(
        self, source: GrowableDeviceTensor, batch: int, entries: tuple[int, int], first: int, start: int, count: int
    ) -> int:
        """Copy `count` positions of an entry along the axis `batch`, which precedes `axis`; return their bytes.

        entries: in `source`, and here. first, start: the first position there, and here. source: of the same kind;
        this tensor itself for a move, whose positions may overlap. On a device of its own the copy is only enqueued.
        """
        lines = math.prod(self._sizes[batch + 1 : self.axis])
        groups, size = math.prod(self._sizes[:batch]), self._position_bytes
        nbytes = groups * lines * count * size
        views = [t.staging.shared(self.stored, t.shape) for t in (self.tensor, source.tensor)]
        if views[0] is not None and views[1] is not None:
            places: list[Any] = [
                (*(slice(None),) * batch, entry, *(slice(None),) * (self.axis - batch - 1), slice(at, at + count))
                for entry, at in zip(entries[::-1], (start, first), strict=True)
            ]
            views[0][places[0]] = views[1][places[1]]
            return nbytes
        if source is self and entries[0] == entries[1] and abs(first - start) < count:
            spare = self.empty_like(1, batch, 0, count)
            spare.copy_entry(self, batch, (entries[0], 0), first, 0, count)
            return self.copy_entry(spare, batch, (0, entries[1]), 0, start, count)
        pitches = source.capacity * size, self.capacity * size
        for group in range(groups):
            begins = [
                (group * t._sizes[batch] + entry) * lines * pitch + at * size
                for t, entry, pitch, at in zip((source, self), entries, pitches, (first, start), strict=True)
            ]
            self.rt.copy_lines(
                source.tensor.buffer, self.tensor.buffer, lines, count * size, pitches, (begins[0], begins[1])
            )
        return nbytes

    def gather(self, indices: Sequence[int], batch: int) -> GrowableDeviceTensor:
        """A copy of the entries `indices` along the axis `batch`."""
        sizes = tuple(len(indices) if i == batch else d for i, d in enumerate(self._sizes))
        made = GrowableDeviceTensor(self.rt, sizes, self.dtype, self.axis, self.capacity, self.length, self.stored)
        made._store(np.take(self._raw(), indices, batch))
        return made

    def _raw(self) -> Array:
        """The valid part of the tensor in its stored dtype; may be a view of the device memory."""
        valid = (slice(None),) * self.axis + (slice(self.length),)
        shared = self.tensor.staging.shared(self.stored, self.tensor.shape)
        found: Array = (self.tensor.numpy() if shared is None else shared)[valid]
        return found

    def shared(self) -> Array | None:
        """A view of all positions in device memory; None if it is not host memory, or stores another dtype."""
        return self.tensor.staging.shared(self.dtype, self.tensor.shape) if self.stored == self.dtype else None

    def raw_positions(self, first: int) -> Array | None:
        """A view of the positions from `first` on, as they are stored; None if the host has no access."""
        shared = self.tensor.staging.shared(self.stored, self.tensor.shape)
        return None if shared is None else shared[(slice(None),) * self.axis + (slice(first, self.length),)]

    def position_lines(self, first: int) -> tuple[int, int]:
        """(number, bytes) of the lines that hold the positions from `first` on."""
        return math.prod(self._sizes[: self.axis]), (self.length - first) * self._position_bytes

    def copy_positions(self, first: int, target: Any, start: int = 0, pitch: int | None = None) -> Any:
        """Enqueue a copy of the positions from `first` on, as they are stored, into a buffer or an array.

        start: byte of the target where the first line goes. pitch: from line to line, None for no gaps. Keep the result
        until an array is filled.
        """
        lines, nbytes = self.position_lines(first)
        pitches = self.capacity * self._position_bytes, nbytes if pitch is None else pitch
        starts = first * self._position_bytes, start
        return self.rt.copy_lines(self.tensor.buffer, target, lines, nbytes, pitches, starts)

    def numpy(self) -> Array:
        """The valid part as a new array of `dtype`."""
        raw = self._raw()
        return from_byte_rows(raw, self.dtype) if self.is_int8 else raw.astype(self.dtype, order="C")

    def write(self, array: Array) -> None:
        """Replace the contents by `array`, which has at most `capacity` positions."""
        self._store(to_byte_rows(array) if self.is_int8 else array)

    def _store(self, array: Array) -> None:
        """Replace the contents by an array of the stored dtype."""
        self.length = array.shape[self.axis]
        valid = (slice(None),) * self.axis + (slice(self.length),)
        shared = self.tensor.staging.shared(self.stored, self.tensor.shape)
        if shared is not None:
            shared[valid] = array
            return
        whole = np.zeros(self.tensor.shape, self.stored)
        whole[valid] = array
        self.tensor.write(whole)
