"""The arrays in host memory that show the valid part of a GrowableDeviceTensor, and mirrors behind them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .device_tensor import DeviceTensor
from .growable_device_tensor import GrowableDeviceTensor

Array = np.ndarray[Any, Any]
_MOST_GATHERED = 1 << 20  # bytes; more are read tensor by tensor


class GrowableHostArrays:
    """Arrays of one tensor, for callers: views of its memory where the host shares it, else of a mirror.

    A mirror gets new positions alone, and its arrays are read-only. is_mirror: whether there is one.
    """

    def __init__(self, source: GrowableDeviceTensor) -> None:
        self.source = source
        self._tensor = source.tensor
        shared = source.shared()
        self.is_mirror = shared is None
        self._whole = np.empty(source.shape_at(source.capacity), source.dtype) if shared is None else shared
        self._owner = self._whole if self._whole.base is None else self._whole.base
        self._address = _address(self._whole)
        self._mirrored = 0  # positions of the mirror that are those of the tensor
        self._unseen = sys.getrefcount(self._owner)

    def shows(self, source: GrowableDeviceTensor) -> bool:
        """Whether these are the arrays of `source` in the memory that it has now."""
        return source is self.source and source.tensor is self._tensor

    @property
    def seen(self) -> int:
        """The number of arrays of others that show the memory; arrays made of these count."""
        return sys.getrefcount(self._owner) - self._unseen

    def has(self, array: Array) -> bool:
        """Whether `array` shows positions of the tensor from the first on, wherever it was passed through."""
        whole, axis = self._whole, self.source.axis
        shape = array.shape
        if array.dtype != whole.dtype or len(shape) != whole.ndim or _address(array) != self._address:
            return False
        if shape[axis] > self.source.length or shape != self.source.shape_at(shape[axis]):
            return False
        return all(d == 1 or a == b for d, a, b in zip(shape, array.strides, whole.strides, strict=True))

    def cut(self, length: int) -> None:
        """Cut the tensor to its first positions."""
        self.source.length = length
        self._mirrored = min(self._mirrored, length)

    @property
    def missing(self) -> int:
        """The first position that a mirror lacks; the length if it lacks none."""
        return min(self._mirrored, self.source.length) if self.is_mirror else self.source.length

    def store(self, positions: Array) -> None:
        """Copy the positions that the mirror lacks, as the tensor stores them."""
        source = self.source
        self._whole[(slice(None),) * source.axis + (slice(self.missing, source.length),)] = positions
        self._mirrored = source.length

    def array(self) -> Array:
        """The valid part, once a mirror has all of it."""
        found: Array = self._whole[(slice(None),) * self.source.axis + (slice(self.source.length),)]
        if self.is_mirror:
            found.flags.writeable = False
        return found


class MirrorUpdates:
    """Brings mirrors up to date. New positions of many tensors are gathered on the device, and read at once."""

    def __init__(self) -> None:
        self._gathered: DeviceTensor | None = None

    def update(self, arrays: Sequence[GrowableHostArrays]) -> None:
        """Read what the mirrors among `arrays` lack, and wait."""
        remote: list[tuple[GrowableHostArrays, int]] = []
        for each in arrays:
            first = each.missing
            if first == each.source.length:
                continue
            shared = each.source.raw_positions(first)
            if shared is None:
                remote.append((each, math.prod(each.source.position_lines(first))))
            else:
                each.store(shared)
        if not remote:
            return
        total = sum(nbytes for _, nbytes in remote)
        rt = remote[0][0].source.rt
        host = np.empty(total, np.uint8)
        parts = np.split(host, np.cumsum([nbytes for _, nbytes in remote])[:-1])
        if total > _MOST_GATHERED:
            pending = [
                each.source.copy_positions(each.missing, part) for (each, _), part in zip(remote, parts, strict=True)
            ]
            rt.finish()
            del pending
        else:
            if self._gathered is None or self._gathered.rt is not rt or self._gathered.nbytes < total:
                self._gathered = DeviceTensor(rt, (total,), np.dtype(np.uint8))
            start = 0
            for each, nbytes in remote:
                each.source.copy_positions(each.missing, self._gathered.buffer, start)
                start += nbytes
            rt.read(self._gathered.buffer, host)
        for (each, _), part in zip(remote, parts, strict=True):
            source = each.source
            each.store(part.view(source.stored).reshape(source.shape_at(source.length - each.missing)))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
