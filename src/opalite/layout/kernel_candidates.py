"""Candidate kernels of a node: each kernel and binding with its estimated time, or the reason of its refusal."""

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
from ..kernels.equivalent_nodes import node_key
from ..kernels.image.image_layout import image_refusal, is_same_image
from ..kernels.kernel import Binding, Kernel, Problem, Tier, kernels_for
from ..kernels.node_in_layouts import place_node
from ..kernels.node_launches import barrier_refusal
from ..ops.conv import Conv
from ..ops.elementwise import PlaceCast
from ..ops.operator import Cost
from .longest_kernel_loop import LONGEST, longest_kernel_loop


@dataclass(frozen=True)
class Option:
    """A kernel with one of its bindings, and its estimated or measured time in seconds."""

    kernel: Kernel | None  # None: a view or a host step
    binding: Binding
    seconds: float
    measured: bool = False

    @property
    def has_images(self) -> bool:
        """Whether the binding has an image."""
        return any(layout is not None and layout.is_image for layout in (*self.binding.inputs, *self.binding.outputs))


@dataclass
class Choice:
    """The chosen option of a node, the alternatives and the refusals: `Node.choice`, shown by explain()."""

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
    """Cache of kernels' answers for one device: identical layers ask the same questions.

    For one plan, in which no knob changes.
    """

    device: DeviceInfo
    options: dict[Hashable, tuple[list[Option], dict[str, str]]] = field(default_factory=dict)


_IN_BUFFERS = "tensors are kept in buffers"
MAX_ELEMENTS = 2**31 - 1
Measured = Callable[[Node, Kernel, Binding], float | None]
"""Measured seconds of a kernel on a node with a binding; None if never measured."""


def only_on_host(dtype: DType) -> str:
    """Reason why a node of a host-only element type runs on the host."""
    return f"{dtype} tensors exist on the host only"


def unsupported(node: Node, device: DeviceInfo) -> str | None:
    """Reason why no kernel can hold the node's tensors, or None."""
    if (dtype := node.host_dtype) is not None:
        return only_on_host(dtype)
    for v in (*node.inputs, *node.outputs):
        if v is None:
            continue
        if v.dtype is DType.FLOAT64 and not device.fp64:
            return "the device has no double precision (cl_khr_fp64)"
        if v.type.count > MAX_ELEMENTS:
            return f"tensor {v!r} has more than {MAX_ELEMENTS} elements"
    if SHORT_LOOPS in device.quirks and (walk := longest_kernel_loop(node)) > LONGEST:
        return f"a work-item might loop over {walk} elements, and this driver ends loops after 65,535 iterations"
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

    memory: BUFFER drops options with images; IMAGE2D drops those without if a kernel has images; None leaves the choice
    open. On devices that prefer images, None gives convolutions images and other nodes the cheapest layout; the
    remaining options are kept for the tuner, and count only once measured. Symbolic sizes count by their hints;
    `confirm` guards the choice.

    measured: times that replace estimates. timed: False returns options without times and order. only: the name of
    the single kernel to ask. The knobs OPALITE_EXCLUDE_KERNELS
    and OPALITE_PREFER_KERNELS count. answers: cache of earlier answers.

    tier: the tier of kernels. A node without a generic kernel gets an optimized one, with row-major bindings preferred,
    since generic kernels use these; without `builds` it runs on the host instead.
    """
    assert answers is None or answers.device is device
    near = hinted(node)

    def ask(memory: Memory | None, measured: Measured | None, tier: Tier) -> tuple[list[Option], dict[str, str]]:
        options, refusals = _ask_kernels(near, device, memory, timed, only, tier, answers)
        images = [o for o in options if o.has_images]
        if memory is Memory.BUFFER and images:
            options = [o for o in options if not o.has_images]
            refusals.update((o.kernel.name, _IN_BUFFERS) for o in images if o.kernel is not None)
        elif memory is Memory.IMAGE2D and images:
            options = images
        if measured is not None:
            options = _with_times(near, options, measured)
        if memory is None and not device.prefers_images and not isinstance(near.op, PlaceCast):
            options = [_left(o) if o.has_images else o for o in options]
        elif memory is None and isinstance(near.op, Conv) and images:
            options = [o if o.has_images else _left(o) for o in options]
        return sorted(options, key=lambda o: o.seconds), refusals

    options, refusals = ask(memory, measured, tier)
    if tier == "generic" and not options and builds:
        options, more = ask(Memory.BUFFER, None, "optimized")
        flat = [o for o in options if all(b is None or b.is_row_major for b in (*o.binding.inputs, *o.binding.outputs))]
        return flat or options, refusals | more
    return options, refusals


def least_seconds(node: Node, device: DeviceInfo, memory: Memory | None, answers: Answers | None = None) -> float:
    """Estimated time of the fastest kernel for `node`; infinite if there is none."""
    options, _ = find_options(node, device, memory, answers=answers)
    return options[0].seconds if options else math.inf


def _ask_kernels(
    node: Node,
    device: DeviceInfo,
    memory: Memory | None,
    timed: bool,
    only: str | None,
    tier: Tier,
    answers: Answers | None,
) -> tuple[list[Option], dict[str, str]]:
    """Answers of the kernels for a node with plain sizes; the lists are the caller's own."""
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
    problems: dict[type[Problem], Problem] = {}  # one for each kernel family
    for kernel in kernels_for(node.op.name):
        if only not in (None, kernel.name) or kernel.tier != tier:
            continue
        if memory is Memory.BUFFER and kernel.images_only:
            refusals[kernel.name] = _IN_BUFFERS
            continue
        p = problems.get(kernel.problem) or problems.setdefault(kernel.problem, kernel.problem(node, device))
        why = reason or kernel.refusal(p) or kernel.no_legal_point(p)
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
    options = _preferred(options, refusals)
    if not kernels_for(node.op.name) and reason is not None:
        refusals[node.op.name] = reason
    if answers is not None and alike is not None and reason is None:  # the reason names a value
        answers.options[key] = list(options), dict(refusals)
    return options, refusals


def _preferred(options: list[Option], refusals: dict[str, str]) -> list[Option]:
    """The options of kernels that OPALITE_PREFER_KERNELS names, if there are any; the others are refused."""
    names = knobs.get("OPALITE_PREFER_KERNELS")
    found = [o for o in options if o.kernel is not None and o.kernel.name in names]
    if not found:
        return options
    others = (o.kernel.name for o in options if o.kernel is not None and o not in found)
    refusals.update((name, "OPALITE_PREFER_KERNELS names another kernel") for name in others)
    return found


def _left(option: Option) -> Option:
    """The option for the tuner only: never chosen before the option is measured."""
    return option if option.measured else replace(option, seconds=math.inf)


def confirm(node: Node, device: DeviceInfo, option: Option) -> str | None:
    """Guard that the chosen option computes `node` at other sizes too. Returns the reason if the option cannot.

    Call this before the node's values have places. Symbolic sizes may prove less than plain ones, as for a
    size of 1.
    """
    if option.kernel is None:
        return None
    p = option.kernel.problem(node, device)
    why = unsupported(node, device) or option.kernel.refusal(p)
    if why is None and option.binding not in option.kernel.bindings(p):
        why = "it binds other layouts for open sizes"
    return why


def _meeting(kernel: Kernel, node: Node, p: Problem) -> str | None:
    """Reason why the driver may miscompute the node by the untuned kernel, in any of its bindings, or None."""
    for binding in kernel.bindings(p):
        placed = kernel.problem(place_node(node, binding), p.device)
        if why := barrier_refusal(kernel, placed, kernel.defaults(placed)):
            return why
    return None


def _with_times(node: Node, options: list[Option], measured: Measured) -> list[Option]:
    """`options` with measured times where known.

    Other estimates are scaled by the ratio of measured to estimated times, and none is below the best measured time: an
    unmeasured option must not win by an optimistic estimate, only by saved casts.
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
    """Layouts in which a Reshape moves nothing: flat first, packed if batch and channels stay, and images.

    Images if `memory` allows images and both images are equal. Packed only for types that the device computes with:
    no kernel packs or unpacks other types.
    """
    x, y = node.x, node.y
    options = [Option(None, Binding((FLAT,), (FLAT,)), 0.0)]
    if x.dtype is DType.FLOAT64 and not device.fp64:
        return options
    if len(x.shape) in (3, 4) and len(y.shape) in (3, 4) and always_equal(x.shape[:2], y.shape[:2]):
        layout = packed(device.pack)
        options.append(Option(None, Binding((layout,), (layout,)), 0.0))
    holds = memory is not Memory.BUFFER and image_refusal(device, x.type, y.type) is None
    if holds and is_same_image(x.shape, y.shape):
        options.append(Option(None, Binding((IMAGE,), (IMAGE,)), 0.0))
    return options
