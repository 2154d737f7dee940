"""View: elements of a tensor by an offset and a stride for each axis, so that movements need no copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .operator import Array

Run = tuple[int, int]
"""(number of elements, stride)"""


@dataclass(frozen=True)
class View:
    """Element i of the view is element offset + sum(i * strides) of a row-major tensor. All in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def whole(shape: Sequence[int]) -> View:
        """The whole of a row-major tensor."""
        return View(tuple(shape), tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))))

    def transpose(self, perm: Sequence[int]) -> View:
        """The view with axes permuted by `perm`."""
        return View(tuple(self.shape[p] for p in perm), tuple(self.strides[p] for p in perm), self.offset)

    def read(self, data: Array) -> Array:
        """The elements of `data` in the view, without a copy."""
        flat = np.ascontiguousarray(data).reshape(-1)
        steps = tuple(s * flat.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, steps, writeable=False)

    @property
    def last(self) -> int:
        """The largest element index in the view; strides are not negative."""
        return self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Movement:
    """The effect of a chain of movements on a row-major tensor: each axis as runs, outermost first.

    An axis that a reshape merged has several runs, which a later reshape may split again.
    """

    axes: tuple[tuple[Run, ...], ...]
    offset: int = 0

    @staticmethod
    def of(shape: Sequence[int]) -> Movement:
        """A tensor before any movement."""
        view = View.whole(shape)
        return Movement(tuple(((n, s),) for n, s in zip(view.shape, view.strides, strict=True)))

    @property
    def view(self) -> View | None:
        """The movement as a View; None if an axis has no constant stride."""
        shape, strides = [], []
        for runs in self.axes:
            kept = merged_runs(runs)
            if len(kept) > 1:
                return None
            size, stride = kept[0] if kept else (1, 0)
            shape.append(size)
            strides.append(stride)
        return View(tuple(shape), tuple(strides), self.offset)

    def transpose(self, perm: Sequence[int]) -> Movement:
        """The movement with axes permuted by `perm`."""
        return Movement(tuple(self.axes[p] for p in perm), self.offset)

    def slice(self, starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> Movement | None:
        """Elements starts + steps * i of every axis; None if that cuts an axis of several runs."""
        axes, offset = [], self.offset
        for runs, start, step, size in zip(self.axes, starts, steps, sizes, strict=True):
            kept = merged_runs(runs)
            if size == math.prod(n for n, _ in kept) and start == 0:
                axes.append(kept)
            elif size == 1 or len(kept) == 1:
                offset += _offset(kept, start)
                axes.append(((size, step * kept[0][1]),) if size > 1 else ())
            else:
                return None
        return Movement(tuple(axes), offset)

    def pick(self, axis: int, index: int) -> Movement:
        """The tensor at one index of an axis, which is removed."""
        return Movement((*self.axes[:axis], *self.axes[axis + 1 :]), self.offset + _offset(self.axes[axis], index))

    def reshape(self, shape: Sequence[int]) -> Movement | None:
        """The same elements in order in another shape; None if the runs cannot be split so."""
        runs = list(merged_runs([run for axis in self.axes for run in axis]))
        axes: list[tuple[Run, ...]] = []
        for size in reversed(shape):
            taken: list[Run] = []
            while size > 1:
                if not runs:
                    return None
                length, stride = runs.pop()
                if size % length == 0:
                    taken.append((length, stride))
                    size //= length
                elif length % size == 0:
                    taken.append((size, stride))
                    runs.append((length // size, stride * size))
                    size = 1
                else:
                    return None
            axes.append(tuple(reversed(taken)))
        return Movement(tuple(reversed(axes)), self.offset) if not runs else None


def merged_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """`runs` without those of one element; runs with a common constant stride are merged."""
    kept: list[Run] = []
    for size, stride in runs:
        if size == 1:
            continue
        if kept and kept[-1][1] == size * stride:
            kept[-1] = (kept[-1][0] * size, stride)
        else:
            kept.append((size, stride))
    return tuple(kept)


def _offset(runs: Sequence[Run], index: int) -> int:
    """Offset of element `index` of an axis of `runs`."""
    offset = 0
    for size, stride in reversed(runs):
        index, digit = divmod(index, size)
        offset += digit * stride
    return offset
