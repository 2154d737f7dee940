"""Strided copies: the merged axes that two views of memory are iterated along."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.symbols import always_equal
from ..codegen.vector_types import Vec, vector_load, vector_store
from ..launch import ELEMENT, Args

MAX_AXES = 8  # outer axes that data_movement/strided_copy_axes.cl takes


@dataclass(frozen=True)
class Copy:
    """A strided copy: extents, strides of source and target (outermost first), and start offsets."""

    extents: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    source_start: int = 0
    target_start: int = 0

    def merged(self) -> Copy:
        """The same copy with the fewest axes: size-1 axes are dropped, axes contiguous in both views are merged."""
        axes: list[tuple[int, int, int]] = []
        for extent, s, t in zip(self.extents, self.source, self.target, strict=True):
            if always_equal(extent, 1):
                continue
            if axes and always_equal(axes[-1][1:], (s * extent, t * extent)):
                axes[-1] = (axes[-1][0] * extent, s, t)
            else:
                axes.append((extent, s, t))
        e, s2, t2 = zip(*(axes or [(1, 1, 1)]), strict=True)
        return Copy(e, s2, t2, self.source_start, self.target_start)

    def without(self, *gone: int) -> Copy:
        """The copy of one line, without the axes numbered `gone`."""
        kept = [k for k in range(len(self.extents)) if k not in gone]
        return Copy(
            tuple(self.extents[k] for k in kept),
            tuple(self.source[k] for k in kept),
            tuple(self.target[k] for k in kept),
            self.source_start,
            self.target_start,
        )

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.extents)

    @property
    def axis_args(self) -> Args:
        """Arguments for AXIS_PARAMS of data_movement/strided_copy_axes.cl."""
        args: Args = {}
        for k, (extent, s, t) in enumerate(zip(self.extents, self.source, self.target, strict=True)):
            args |= {f"e{k}": extent, f"xs{k}": s, f"ys{k}": t}
        return args


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def accesses(size: int, width: int, held: str | None = None) -> tuple[str, str]:
    """(load of `width` elements of `size` bytes at p, store of v at p); v is held as `held` elements."""
    t = Vec(ELEMENT[size], width)
    load, value = vector_load(t, "(p)"), "(v)"
    if held is not None and held != t.base:
        load, value = t.of(held).convert(load), t.convert(value)
    return load, f"({vector_store(t, '(p)', value)})"
