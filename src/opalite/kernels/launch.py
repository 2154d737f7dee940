"""Launches as plain data: entry point, arguments, grid, defines; and the weights, tables and memory that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from ..ir.dtype import DType
from ..ir.graph import Value
from ..ir.symbols import is_symbolic
from ..lazy_dataclass import dataclass

Grid = tuple[int, ...]
Defines = dict[str, Any]
Array = np.ndarray[Any, Any]

STORAGE = {
    DType.FLOAT32: 0,
    DType.FLOAT16: 1,
    DType.FLOAT64: 2,
    DType.INT32: 3,
    DType.INT64: 4,
    DType.UINT32: 5,
    DType.UINT64: 6,
    DType.BFLOAT16: 7,
    DType.INT8: 8,
    DType.UINT8: 9,
    DType.INT16: 10,
    DType.UINT16: 11,
}
"""The STORAGE define of include/common.cl for each element type that arithmetic kernels hold."""

ELEMENT = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""OpenCL type that moves an element of so many bytes, whatever it means."""


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant packed for a kernel, once, ahead of time: `fn(value.data)`.

    form: name of the packing with everything it depends on ("oihw->OIhw16i16o"). Nodes that need the same form of the
    same constant share one buffer. image: the array is (height, width, 4). by_slices: `fn` reads the constant in
    slices, possibly from the model's file, so that a large one is in memory once. packed_type: element type and shape
    of the result of `fn`, if known in advance; planning then packs no large weight.
    """

    value: Value
    form: str
    fn: Callable[[Any], Array]
    image: bool = False
    by_slices: bool = False
    packed_type: tuple[np.dtype[Any], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Scratch:
    """Device memory that lives during one node; the node's launches share it by name."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Local:
    """A __local pointer argument of `nbytes`."""

    nbytes: int


@dataclass(frozen=True, eq=False)
class SymbolicTable:
    """A table of integers, some of them symbolic; made by `make_table`."""

    numbers: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class PerShapeTable:
    """A table recomputed for each shape: `maker` (plan/template/symbolic_numbers.py) applied to symbolic `args`.

    count: its elements of `dtype`.
    """

    maker: str
    args: tuple[Any, ...]
    count: int
    dtype: np.dtype[Any]


Table = Array | SymbolicTable | PerShapeTable
Arg = Value | Weight | Scratch | Local | Table | int | float | np.generic
"""A kernel argument: a Value's memory, prepared weights, scratch, local memory, a table (an array computed from sizes
and attributes, held as a constant buffer), or a scalar (int is int32, float is float32)."""

Args = dict[str, Arg]


def make_table(rows: Sequence[Sequence[int]], dtype: Any = np.int32) -> Table:
    """Rows of numbers as a table argument; kernels read the rows as one flat array."""
    numbers = tuple(n for row in rows for n in row)
    return SymbolicTable(numbers, np.dtype(dtype)) if is_symbolic(numbers) else np.array(rows, dtype)


@dataclass(frozen=True)
class Launch:
    """One enqueue: entry point, arguments, global size, work-group size (None: the tuner or the driver decides).

    args: by parameter name, in any order (kernels/lower_arguments.py). defines: -D options. prelude: generated OpenCL C
    before the source, such as epilogues. The grid is rounded up to the work-group, so kernels check bounds.
    """

    entry: str
    args: Mapping[str, Arg]
    grid: Grid
    group: Grid | None = None
    defines: Mapping[str, Any] = field(default_factory=dict)
    prelude: str = ""
    source: str = ""

    def replace_arguments(self, given: Callable[[Arg], Arg]) -> Launch:
        """A copy of the launch with `given(a)` in place of each argument a."""
        return replace(self, args={name: given(a) for name, a in self.args.items()})


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
