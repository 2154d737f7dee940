"""Kernel declarations: operator, accepted layouts, parameter space, refusals, launches.

A kernel is a `.cl` file of OpenCL C beside one small class. The class holds no OpenCL object, measures nothing and
never asks for a vendor. It maps a node and a set of parameters to `Launch` records, which are plain data.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ..cost import share_of_peak
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Node, Value
from ..ir.place import FLAT, Layout
from ..ir.symbols import is_symbolic
from ..ops.operator import Cost

Params = Mapping[str, Any]
Space = Mapping[str, tuple[Any, ...]]
Grid = tuple[int, ...]
Tier = Literal["optimized", "generic"]
Array = np.ndarray[Any, Any]


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
    """A table recomputed for each shape: `maker` (plan/template/size_dependent_tables.py) applied to symbolic `args`.

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


@dataclass(frozen=True)
class Binding:
    """Layouts that a kernel accepts for each input (None: absent, or taken as Weight) and produces for each output."""

    inputs: tuple[Layout | None, ...]
    outputs: tuple[Layout, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """A node on a device, as kernels query it. Kernel families derive classes with shared computed properties.

    Properties are computed on first use and cached. They depend on the current layouts of the node's values, so a
    change of layout needs a new Problem.
    """

    node: Node
    device: DeviceInfo


class Kernel:
    """One implementation of one canonical operator. Stateless; `register` makes the only instance.

    problem: class of the `p` that methods take; `kernel.problem(node, device)` makes one. space: parameter name ->
    legal values; the first combination that `illegal` accepts is the untuned default, so good general values come
    first. tier: "optimized" for a node's shapes and window, or "generic", a few programs that serve any model
    (docs/tiers.md). A plan uses one tier. A node without a generic kernel runs on the host or by an optimized kernel.
    half_sums: whether precision fp16_fast may define ACC as half. Products and windows allow it, since their sums lose
    few digits. Long sums and exponentials stay in float. images_only: whether all bindings use images. rank: order
    among kernels of one operator whose estimates are equal; the lowest wins. name: the class's name, shown in reports.
    """

    name: ClassVar[str]
    op: ClassVar[str]
    problem: ClassVar[type[Problem]] = Problem
    source: ClassVar[str]
    space: ClassVar[Space] = {}
    half_sums: ClassVar[bool] = False
    tier: ClassVar[Tier] = "optimized"
    images_only: ClassVar[bool] = False
    rank: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__

    def refuse(self, p: Any) -> str | None:
        """The reason why this kernel cannot compute the node on the device, or None. Layouts are not known yet."""
        return None

    def bindings(self, p: Any) -> Sequence[Binding]:
        """Every combination of layouts that the kernel accepts for the node; row-major by default."""
        return (flat_binding(p.node),)

    def illegal(self, p: Any, params: Params) -> str | None:
        """The reason why `params` do not work for the node, or None."""
        return None

    def launch(self, p: Any, params: Params) -> list[Launch]:
        """The launches that compute the node, whose values have their final layouts."""
        raise NotImplementedError

    def join(self, p: Any, inputs: Sequence[int]) -> list[Launch] | None:
        """Launches that copy several inputs of a Concat at once; None if each needs a launch of its own.

        inputs: numbers of the inputs that are not computed in place.
        """
        return None

    def defaults(self, p: Any) -> dict[str, Any]:
        """Untuned parameters: the first legal point of the space. Override if a heuristic knows better."""
        for point in self.points(p):
            return point
        raise ValueError(f"kernel {self.name} has no legal parameters for {p.node.label}")

    def points(self, p: Any) -> Iterator[dict[str, Any]]:
        """Every legal parameter set in order of the space."""
        for values in itertools.product(*self.space.values()):
            point = dict(zip(self.space, values, strict=True))
            if self.illegal(p, point) is None:
                yield point

    def no_legal_point(self, p: Any) -> str | None:
        """The reason why no point of the space is legal (that of the first point), or None."""
        if next(self.points(p), None) is not None:
            return None
        first = {name: values[0] for name, values in self.space.items()}
        return f"no parameters suit: {self.illegal(p, first)}"

    def share(self, device: DeviceInfo) -> float:
        """Share of the device's peak that an untuned run reaches, from the tables of cost/."""
        return share_of_peak(self.name, device)

    def seconds(self, p: Any, cost: Cost) -> float:
        """Estimated seconds by a roofline at `share`, plus launch time; ranks kernels until they are measured."""
        device: DeviceInfo = p.device
        arithmetic = cost.flops / (device.peak_flops * self.share(device))
        return max(arithmetic, cost.bytes / device.bandwidth) + device.launch_s


def flat_binding(node: Node) -> Binding:
    """The binding with every value in a row-major buffer."""
    return Binding(
        tuple(None if v is None else FLAT for v in node.inputs),
        tuple(FLAT for _ in node.outputs),
    )


def uniform_binding(node: Node, layout: Layout) -> Binding:
    """The binding with every input and output in `layout`."""
    return Binding(
        tuple(None if v is None else layout for v in node.inputs),
        tuple(layout for _ in node.outputs),
    )


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
