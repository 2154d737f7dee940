"""What a kernel declares: its operator, the layouts it binds, its parameter space, refusals, and its launches.

A kernel is a `.cl` file of OpenCL C beside one small class. The class holds no OpenCL object, measures nothing and
never asks for a vendor: it turns a node and a set of parameters into `Launch` records, which are plain data.
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
    """A constant in the form a kernel wants it, made once ahead of time: `fn(value.data)`.

    `form` names the transformation with everything it depends on ("oihw->OIhw16i16o"), so that two nodes that
    want the same form of the same constant share one buffer. With `image`, the array is (height, width, 4).
    by_slices: `fn` takes the constant as it is held, perhaps in the model's file, and goes through it by `read_slices`,
    so that a large one is in memory once. packed_type: element type and shape of the result of `fn`, if known in
    advance: planning then packs no large weight.
    """

    value: Value
    form: str
    fn: Callable[[Any], Array]
    image: bool = False
    by_slices: bool = False
    packed_type: tuple[np.dtype[Any], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Scratch:
    """Device memory that lives during one node only; launches of the node share it by name."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Local:
    """A __local pointer argument of `nbytes`."""

    nbytes: int


@dataclass(frozen=True, eq=False)
class SymbolicTable:
    """A table of numbers of which some depend on sizes that are symbols; `make_table` makes one."""

    numbers: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class PerShapeTable:
    """A table that is made anew for each size: `maker` (plan/template/size_dependent_tables.py) of `args`, which hold
    sizes that are symbols.

    count: elements of `dtype` that it has.
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
    """Rows of numbers as an argument; kernels see them one after the other."""
    numbers = tuple(n for row in rows for n in row)
    return SymbolicTable(numbers, np.dtype(dtype)) if is_symbolic(numbers) else np.array(rows, dtype)


@dataclass(frozen=True)
class Launch:
    """One enqueue: entry point, arguments, global size, work-group size (None: the tuner or the driver decides).

    `args` are by the names that the kernel's declaration gives its parameters, in any order
    (kernels/lower_arguments.py). `defines` become -D options; `prelude` is generated OpenCL C put before the source
    (epilogues, expressions). A grid need not be a multiple of the group: it is rounded up, and kernels guard.
    """

    entry: str
    args: Mapping[str, Arg]
    grid: Grid
    group: Grid | None = None
    defines: Mapping[str, Any] = field(default_factory=dict)
    prelude: str = ""
    source: str = ""

    def replace_arguments(self, given: Callable[[Arg], Arg]) -> Launch:
        """The launch with `given(a)` in place of each argument a."""
        return replace(self, args={name: given(a) for name, a in self.args.items()})


@dataclass(frozen=True)
class Binding:
    """Layouts a kernel accepts for each input (None: absent or taken as Weight) and gives for each output."""

    inputs: tuple[Layout | None, ...]
    outputs: tuple[Layout, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """A node that a kernel is asked about, and the device. Families of kernels derive from it what they share.

    It is made once and asked often: what is derived is worked out when it is first asked for, and kept. So it is for
    the places that the node's values have now; where those change, another is made.
    """

    node: Node
    device: DeviceInfo


class Kernel:
    """One way to compute one canonical operator. Stateless; `register` makes the one instance.

    problem: the class of what its methods take; `kernel.problem(node, device)` makes one.
    space: parameter name -> legal values; the first combination that `illegal` accepts is the untuned default,
    so put good general values first.
    tier: "optimized" for a node's sizes and window, or "generic": of a few programs that serve any model
        (docs/tiers.md). A plan is of one of the two. What no general kernel computes, the host or a special one does.
    half_sums: whether precision fp16_fast may define ACC as half: products and windows, whose sums lose a few digits.
        Sums of many terms, and exponentials, stay in float.
    images_only: whether all of its bindings hold images.
    rank: order among kernels of one operator whose estimates are equal; the lowest wins.
    name: what reports show: the class's.
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
        """Why this kernel cannot compute the node on the device, or None. Asked before layouts are known."""
        return None

    def bindings(self, p: Any) -> Sequence[Binding]:
        """Every combination of layouts that the kernel accepts for the node; by default all flat."""
        return (flat_binding(p.node),)

    def illegal(self, p: Any, params: Params) -> str | None:
        """Why `params` do not work for the node, or None."""
        return None

    def launch(self, p: Any, params: Params) -> list[Launch]:
        """The launches that compute the node, whose values now have their places."""
        raise NotImplementedError

    def join(self, p: Any, inputs: Sequence[int]) -> list[Launch] | None:
        """Launches that move several inputs of a Concat at once, those that the planner leaves to be moved, by number;
        None where each takes its own of `launch`."""
        return None

    def defaults(self, p: Any) -> dict[str, Any]:
        """Untuned parameters: the first legal point of the space. Override where a heuristic knows better."""
        for point in self.points(p):
            return point
        raise ValueError(f"kernel {self.name} has no legal parameters for {p.node.label}")

    def points(self, p: Any) -> Iterator[dict[str, Any]]:
        """Every legal parameter set, in order of the space."""
        for values in itertools.product(*self.space.values()):
            point = dict(zip(self.space, values, strict=True))
            if self.illegal(p, point) is None:
                yield point

    def no_legal_point(self, p: Any) -> str | None:
        """Why no point of the space is legal for the node, or None: its first point's reason."""
        if next(self.points(p), None) is not None:
            return None
        first = {name: values[0] for name, values in self.space.items()}
        return f"no parameters suit: {self.illegal(p, first)}"

    def share(self, device: DeviceInfo) -> float:
        """Share of the device's peak that an untuned run reaches, as the tables of cost/ have it."""
        return share_of_peak(self.name, device)

    def seconds(self, p: Any, cost: Cost) -> float:
        """Estimated time, which orders kernels until they are measured: roofline at the share plus a launch."""
        device: DeviceInfo = p.device
        arithmetic = cost.flops / (device.peak_flops * self.share(device))
        return max(arithmetic, cost.bytes / device.bandwidth) + device.launch_s


def flat_binding(node: Node) -> Binding:
    """Everything in plain row-major buffers."""
    return Binding(
        tuple(None if v is None else FLAT for v in node.inputs),
        tuple(FLAT for _ in node.outputs),
    )


def uniform_binding(node: Node, layout: Layout) -> Binding:
    """Every input and output in `layout`."""
    return Binding(
        tuple(None if v is None else layout for v in node.inputs),
        tuple(layout for _ in node.outputs),
    )


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
