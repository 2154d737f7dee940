"""Options: every kernel that might compute a node, in every layout it binds, with its score or why it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from .. import knobs
from ..ir.device.device_family import SHARED_VALUES, SHORT_LOOPS, UNBUILT
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Node
from ..ir.place import FLAT, IMAGE, Memory, packed
from ..ir.shape_hints import hinted
from ..ir.symbols import always_equal
from ..kernels.barrier_quirk import barrier_refusal
from ..kernels.equivalent_nodes import node_key
from ..kernels.image.image_layout import image_refusal, is_same_image
from ..kernels.kernel import Binding, Kernel, Problem, Tier
from ..kernels.kernel_registry import kernels_for
from ..kernels.node_in_layouts import place_node
from ..ops.conv import Conv
from ..ops.elementwise import PlaceCast
from ..ops.operator import Cost
from .loop_trip_count import LONGEST, walk_of


@dataclass(frozen=True)
class Option:
    """A kernel with one of its bindings, and the seconds it is expected to take, or was measured to take."""

    kernel: Kernel | None  # None: a view or a host step
    binding: Binding
    seconds: float
    measured: bool = False

    @property
    def has_images(self) -> bool:
        """Whether a tensor of the binding is an image."""
        return any(layout is not None and layout.is_image for layout in (*self.binding.inputs, *self.binding.outputs))


@dataclass
class Choice:
    """What picking decided for a node and why: kept on `Node.choice` and shown by explain()."""

    option: Option
    options: list[Option] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    host_reason: str = ""  # why the node runs on the host, if it does

    @property
    def kernel(self) -> Kernel | None:
        """The chosen kernel."""
        return self.option.kernel


@dataclass(frozen=True)
class Answers:
    """What kernels answered for one device, by what they were asked: every layer that is like another asks the same.

    It is for one plan, in which no setting changes.
    """

    device: DeviceInfo
    options: dict[Hashable, tuple[list[Option], dict[str, str]]] = field(default_factory=dict)


_IN_BUFFERS = "tensors are kept in buffers"
MAX_ELEMENTS = 2**31 - 1
Measured = Callable[[Node, Kernel, Binding], float | None]
"""Seconds that a kernel was measured to take on a node in the layouts of a binding; None where it never was."""


def only_on_host(dtype: DType) -> str:
    """Why a node of an element type that no device holds runs on the host."""
    return f"{dtype} tensors live on the host only"


def unsupported(node: Node, device: DeviceInfo) -> str | None:
    """Why no kernel at all can hold the node's tensors, or None."""
    if (dtype := node.host_dtype) is not None:
        return only_on_host(dtype)
    for v in (*node.inputs, *node.outputs):
        if v is None:
            continue
        if v.dtype is DType.FLOAT64 and not device.fp64:
            return "the device has no double precision (cl_khr_fp64)"
        if v.type.count > MAX_ELEMENTS:
            return f"tensor {v!r} has more than {MAX_ELEMENTS} elements"
    if SHORT_LOOPS in device.quirks and (walk := walk_of(node)) > LONGEST:
        return f"a work-item might walk over {walk} elements, and this driver ends loops after 65,535 turns"
    return None


def find_options(
    node: Node,
    device: DeviceInfo,
    memory: Memory | None,
    measured: Measured | None = None,
    *,
    timed: bool = True,
    only: str | None = None,
    tier: Tier = "optimized",
    builds: bool = True,
    answers: Answers | None = None,
) -> tuple[list[Option], dict[str, str]]:
    """(options in order of expected time, refusals by kernel name).

    `memory` BUFFER drops options with images; IMAGE2D drops those without where a kernel has images. None leaves the
    choice open: on devices that prefer images, convolutions, where the time goes, take them, and others what is
    cheapest beside their neighbours; buffers there, and images elsewhere, are for the tuner to try, and count only once
    they were measured.
    Sizes that are symbols count as they are at hand: `confirm` guards what is chosen.
    `measured` times take the place of estimates; unless `timed` there are no times, and no order. `only`: the name of
    the one kernel that is asked. Kernels that OPALITE_EXCLUDE_KERNELS names refuse. answers: those that are known,
    and to be kept.

    Only kernels of `tier` are asked. Where no generic one takes the node, an optimized one does. Row-major
    bindings are then preferred, since generic kernels read and write them without a cast. Without `builds` no
    optimized kernel is used, and the node is left to the host.
    """
    assert answers is None or answers.device is device
    options, refusals = _find_options(node, device, memory, measured, timed, only, tier, answers)
    if tier == "generic" and not options and builds:
        options, more = _find_options(node, device, Memory.BUFFER, None, timed, only, "optimized", answers)
        flat = [o for o in options if all(b is None or b.is_row_major for b in (*o.binding.inputs, *o.binding.outputs))]
        return flat or options, refusals | more
    return options, refusals


def least_seconds(node: Node, device: DeviceInfo, memory: Memory | None) -> float:
    """Time that the fastest kernel for `node` is expected to take, infinite where there is none."""
    options, _ = find_options(node, device, memory)
    return options[0].seconds if options else math.inf


def _find_options(
    node: Node,
    device: DeviceInfo,
    memory: Memory | None,
    measured: Measured | None,
    timed: bool,
    only: str | None,
    tier: Tier,
    answers: Answers | None,
) -> tuple[list[Option], dict[str, str]]:
    node = hinted(node)
    options, refusals = _ask_kernels(node, device, memory, timed, only, tier, answers)
    images = [o for o in options if o.has_images]
    if memory is Memory.BUFFER and images:
        options = [o for o in options if not o.has_images]
        refusals.update((o.kernel.name, _IN_BUFFERS) for o in images if o.kernel is not None)
    elif memory is Memory.IMAGE2D and images:
        options = images
    if measured is not None:
        options = _with_times(node, options, measured)
    if memory is None and not device.prefers_images and not isinstance(node.op, PlaceCast):
        options = [_left(o) if o.has_images else o for o in options]
    elif memory is None and isinstance(node.op, Conv) and images:
        options = [o if o.has_images else _left(o) for o in options]
    options.sort(key=lambda o: o.seconds)
    return options, refusals


def _ask_kernels(
    node: Node,
    device: DeviceInfo,
    memory: Memory | None,
    timed: bool,
    only: str | None,
    tier: Tier,
    answers: Answers | None,
) -> tuple[list[Option], dict[str, str]]:
    """What kernels answer for a node at plain sizes; lists of the caller's own."""
    alike = None if answers is None else node_key(node)
    key = (alike, memory is Memory.BUFFER, timed, only, tier)
    known = None if answers is None or alike is None else answers.options.get(key)
    if known is not None:
        return list(known[0]), dict(known[1])
    refusals: dict[str, str] = {}
    options: list[Option] = []
    reason = unsupported(node, device)
    cost = node.cost() if reason is None else Cost(0, 0)
    without = knobs.get("OPALITE_EXCLUDE_KERNELS")
    problems: dict[type[Problem], Problem] = {}  # what kernels of a family ask about the node is worked out once
    for kernel in kernels_for(node.op.name):
        if only not in (None, kernel.name) or kernel.tier != tier:
            continue
        if memory is Memory.BUFFER and kernel.images_only:
            refusals[kernel.name] = _IN_BUFFERS
            continue
        p = problems.get(kernel.problem) or problems.setdefault(kernel.problem, kernel.problem(node, device))
        why = reason or kernel.refuse(p) or kernel.no_legal_point(p)
        if why is None and kernel.name in without:
            why = "OPALITE_EXCLUDE_KERNELS names it"
        if why is None and UNBUILT + kernel.name in device.quirks:
            why = "its program does not compile on this device"
        if why is None and SHARED_VALUES in device.quirks:
            why = _meeting(kernel, node, p)
        if why is not None:
            refusals[kernel.name] = why
            continue
        seconds = kernel.seconds(p, cost) if timed else 0.0
        options += [Option(kernel, binding, seconds) for binding in kernel.bindings(p)]
    if not kernels_for(node.op.name) and reason is not None:
        refusals[node.op.name] = reason
    if answers is not None and alike is not None and reason is None:  # which names a value
        answers.options[key] = list(options), dict(refusals)
    return options, refusals


def _left(option: Option) -> Option:
    """The option as one that the tuner tries, and nobody takes before it was measured."""
    return option if option.measured else replace(option, seconds=math.inf)


def confirm(node: Node, device: DeviceInfo, option: Option) -> str | None:
    """Guard that the option, which was chosen for the sizes at hand, computes `node` at other sizes too.

    Asked, as `find_options` is, before the node's values have the places that the kernel binds. Returns why it cannot
    where symbols tell less than plain numbers do, as of a size that is 1 at hand.
    """
    if option.kernel is None:
        return None
    p = option.kernel.problem(node, device)
    why = unsupported(node, device) or option.kernel.refuse(p)
    if why is None and option.binding not in option.kernel.bindings(p):
        why = "it binds other layouts where sizes are open"
    return why


def _meeting(kernel: Kernel, node: Node, p: Problem) -> str | None:
    """Why the driver may compute the node wrongly by the untuned kernel, in any of its bindings, or None."""
    for binding in kernel.bindings(p):
        placed = kernel.problem(place_node(node, binding), p.device)
        if why := barrier_refusal(kernel, placed, kernel.defaults(placed)):
            return why
    return None


def _with_times(node: Node, options: list[Option], measured: Measured) -> list[Option]:
    """`options` with measured times where there are any.

    The others' estimates grow as those of the measured ones were exceeded, and none falls below the best measured time:
    an option that was never measured must not win by the optimism of its estimate, only by the casts that it saves.
    """
    found: list[Option] = []
    excess, best = 1.0, float("inf")
    for o in options:
        seconds = measured(node, o.kernel, o.binding) if o.kernel is not None else None
        if seconds is not None:
            excess = max(excess, seconds / o.seconds if o.seconds > 0 else 1.0)
            best = min(best, seconds)
            o = replace(o, seconds=seconds, measured=True)
        found.append(o)
    if best == float("inf"):
        return options
    return [o if o.measured else replace(o, seconds=max(o.seconds * excess, best)) for o in found]


def view_options(node: Node, device: DeviceInfo, memory: Memory | None = Memory.BUFFER) -> list[Option]:
    """Layouts in which a Reshape moves nothing: flat always, which comes first, packed where batch and channels stay,
    and images, where `memory` has them, if both are the same one.

    Packed only where the device computes with the type: nothing there could pack or unpack it.
    """
    x, y = node.x, node.y
    options = [Option(None, Binding((FLAT,), (FLAT,)), 0.0)]
    if x.dtype is DType.FLOAT64 and not device.fp64:
        return options
    if len(x.shape) in (3, 4) and len(y.shape) in (3, 4) and always_equal(x.shape[:2], y.shape[:2]):
        layout = packed(device.pack)
        options.append(Option(None, Binding((layout,), (layout,)), 0.0))
    if (
        memory is not Memory.BUFFER
        and image_refusal(device, x.type, y.type) is None
        and is_same_image(x.shape, y.shape)
    ):
        options.append(Option(None, Binding((IMAGE,), (IMAGE,)), 0.0))
    return options
