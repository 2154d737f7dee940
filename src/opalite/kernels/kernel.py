"""Kernel declarations: operator, accepted layouts, parameter space, refusals, launches.

A kernel is a `.cl` file of OpenCL C and one small class in the same folder. The class maps a node and a set of
parameters to `Launch` records, which are plain data. It has no OpenCL objects, no measurements and no vendor checks.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from ..cost import share_of_peak
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Node
from ..ir.load_plugins import load_plugins
from ..ir.place import FLAT, Layout
from ..ir.plugins import is_foreign, watch
from ..ops.operator import Cost, known_ops
from .launch import Grid, Launch
from .launch_workgroups import group_refusal

Params = Mapping[str, Any]
Space = Mapping[str, tuple[Any, ...]]
Tier = Literal["optimized", "generic"]


@dataclass(frozen=True)
class Binding:
    """Layouts that a kernel accepts for each input (None: absent, or taken as Weight) and produces for each output."""

    inputs: tuple[Layout | None, ...]
    outputs: tuple[Layout, ...]


Bindings = Sequence[Binding]


@dataclass(frozen=True)
class LaunchConfig:
    """Kernel parameters, the work-group for launches that leave it open, and a phrase on their origin."""

    params: Params
    group: Grid | None = None
    origin: str = ""


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

    problem: class of the `p` that methods take; `kernel.problem(node, device)` makes one. source: the `.cl` file, by
    default that of the base class, else the one beside the declaration. space: parameter name -> legal values; the
    first combination that `illegal` accepts is the untuned default, so good general values come first. untuned:
    parameters on CPUs, and on other devices. half_sums: whether precision fp16_fast may define ACC as half. Products
    and windows allow it, since their sums lose few digits. Long sums and exponentials stay in float. tier: "optimized"
    for a node's shapes and window, or "generic", a few programs that serve any model (docs/tiers.md). A plan uses one
    tier. A node without a generic kernel runs on the host or by an optimized kernel. images_only: whether all bindings
    use images. takes_epilogue: whether it applies a node's epilogue; kernels of other packages must say so. rank:
    order among kernels of one operator whose estimates are equal; the lowest wins. name: the class's name, shown in
    reports. cost_name: its rows in the tables of cost/; a kernel of another package that is derived from one of these
    is expected to take as long.
    """

    name: ClassVar[str]
    cost_name: ClassVar[str]
    op: ClassVar[str]
    problem: ClassVar[type[Problem]] = Problem
    source: ClassVar[str]
    space: ClassVar[Space] = {}
    untuned: ClassVar[tuple[Params, Params] | None] = None
    half_sums: ClassVar[bool] = False
    tier: ClassVar[Tier] = "optimized"
    images_only: ClassVar[bool] = False
    takes_epilogue: ClassVar[bool] = True
    rank: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if not (is_foreign(cls) and hasattr(cls, "cost_name")):
            cls.cost_name = cls.name

    def refuse(self, p: Any) -> str | None:
        """The reason why this kernel cannot compute the node on the device, or None. Layouts are not known yet."""
        return None

    def refusal(self, p: Any) -> str | None:
        """The reason of `refuse`, or that the node has an epilogue which the kernel does not apply; None if neither."""
        why = self.refuse(p)
        if why is None and p.node.epilogue is not None and not self.takes_epilogue:
            return f"it does not apply the node's epilogue, {p.node.epilogue} (takes_epilogue)"
        return why

    def bindings(self, p: Any) -> Bindings:
        """Every combination of layouts that the kernel accepts for the node; row-major by default."""
        return (flat_binding(p.node),)

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        """Whether input `i` needs no cast if it is stored as `stored` and the node's precision is `wanted`: floats."""
        return stored is wanted

    def gives(self, stored: DType, wanted: DType) -> bool:
        """Whether the output may be stored as `stored` if the node's precision is `wanted`: floats."""
        return stored is wanted

    def illegal(self, p: Any, params: Params) -> str | None:
        """The reason why `params` do not work for the node, or None; by default, those of the size of WG."""
        return group_refusal(params.get("WG", 1), p.device)

    def launch(self, p: Any, params: Params) -> list[Launch]:
        """The launches that compute the node, whose values have their final layouts."""
        raise NotImplementedError

    def join(self, p: Any, inputs: Sequence[int]) -> list[Launch] | None:
        """Launches that copy several inputs of a Concat at once; None if each needs a launch of its own.

        inputs: numbers of the inputs that are not computed in place.
        """
        return None

    def defaults(self, p: Any) -> Params:
        """Untuned parameters: `untuned`, else the first legal point. Override if a heuristic knows better."""
        if self.untuned is not None:
            return self.untuned[0 if p.device.is_cpu else 1]
        for point in self.points(p):
            return point
        raise ValueError(f"kernel {self.name} has no legal parameters for {p.node.label}")

    def points(self, p: Any) -> Iterator[Params]:
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
        return share_of_peak(self.cost_name, device)

    def seconds(self, p: Any, cost: Cost) -> float:
        """Estimated seconds by a roofline at `share`, plus launch time; ranks kernels until they are measured."""
        device: DeviceInfo = p.device
        arithmetic = cost.flops / (device.peak_flops * self.share(device))
        return max(arithmetic, cost.bytes / device.bandwidth) + device.launch_s


def flat_binding(node: Node) -> Binding:
    """The binding with every value in a row-major buffer."""
    return Binding(tuple(None if v is None else FLAT for v in node.inputs), tuple(FLAT for _ in node.outputs))


def uniform_binding(node: Node, layout: Layout) -> Binding:
    """The binding with every input and output in `layout`."""
    return Binding(tuple(None if v is None else layout for v in node.inputs), tuple(layout for _ in node.outputs))


_KERNELS: dict[str, list[Kernel]] = {}
_K = TypeVar("_K", bound=type[Kernel])


def register(cls: _K) -> _K:
    """Class decorator: make the kernel a candidate for its operator. ValueError for an unknown one."""
    if cls.op not in known_ops():
        raise ValueError(f"kernel {cls.__name__} computes {cls.op!r}, not a canonical operator; {_names(cls.op)}")
    if not hasattr(cls, "source"):
        cls.source = cls.__module__.removeprefix(f"{__package__}.").replace(".", "/") + ".cl"
    known = _KERNELS.setdefault(cls.op, [])
    if any(k.name == cls.__name__ for k in known):
        raise ValueError(f"kernel {cls.__name__} is registered twice")
    known.append(cls())
    known.sort(key=lambda k: k.rank)
    return cls


def withdraw_kernel(cls: type[Kernel]) -> None:
    """Undo `register`."""
    known = _KERNELS[cls.op]
    known[:] = [k for k in known if type(k) is not cls]


def _names(op: str) -> str:
    """Names of existing operators that resemble `op`, then all of them, for an error message."""
    close = difflib.get_close_matches(op, known_ops(), 3)
    meant = f"is it {' or '.join(close)}? " if close else ""
    return f"{meant}There are: {', '.join(sorted(known_ops()))}"


def kernels_for(op: str) -> Sequence[Kernel]:
    """Every kernel of an operator, by rank, then in order of registration."""
    load_plugins()
    return _KERNELS.get(op, ())


def all_kernels() -> Iterator[Kernel]:
    """Every registered kernel."""
    return itertools.chain.from_iterable(_KERNELS.values())


watch(all_kernels)
