"""Choose layouts and kernels: the option of each node that is cheapest with the casts it needs.

Every node starts with its cheapest option. Then each node in turn takes the option that is best for its neighbours'
layouts, until nothing changes (iterated conditional modes). Two starts, one preferring packed layouts and one flat,
avoid poor local minima; the cheaper result wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import PlacementError
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph, Node, Value, new_value
from ..ir.patch import Patch, apply_patches
from ..ir.place import FLAT, HOST, Layout, Memory, Place, Target
from ..ir.symbols import always_equal, hint_of
from ..ir.tensor_type import TensorType
from ..kernels.kernel import Binding, Tier
from ..ops.data_movement import Reshape
from ..ops.elementwise import Elementwise
from ..ops.host import HostOp
from .kernel_candidates import Answers, Choice, Measured, Option, confirm, find_options, only_on_host, view_options

_NO_KERNEL = {True: "no kernel is registered", False: "no general kernel is registered"}
HOST_SECONDS = 1e-3  # Python time of a host step, without transfers
_SWEEPS = 12


@dataclass
class _Problem:
    graph: Graph
    device: DeviceInfo
    options: dict[Node, list[Option]] = field(default_factory=dict)  # in order of their seconds
    uses: dict[Value, list[tuple[Node, int]]] = field(default_factory=dict)
    numbers: dict[Value, int] = field(default_factory=dict)  # output number of a value at its producer
    exposed: set[Value] = field(default_factory=set)

    def find_uses(self) -> None:
        """Find the readers and the producer of each value."""
        self.uses.clear()
        self.numbers = {v: i for node in self.graph.nodes for i, v in enumerate(node.outputs)}
        self.exposed = set(self.graph.outputs)
        for node in self.graph.nodes:
            for i, v in enumerate(node.inputs):
                if v is not None:
                    self.uses.setdefault(v, []).append((node, i))

    def neighbours(self, node: Node) -> Iterator[Node]:
        """Nodes whose casts depend on the choice for `node`."""
        yield from (v.producer for v in node.inputs if v is not None and v.producer is not None)
        yield from (user for out in node.outputs for user, _ in self.uses.get(out, ()))

    def cast_seconds(self, t: TensorType, a: Layout, b: Layout) -> float:
        """Time of one layout cast."""
        if a is b or a == b:
            return 0.0
        shape: tuple[int, ...] = hint_of(t.shape)
        if is_free_cast(shape, a, b):
            return 0.0
        return 2.0 * math.prod(shape) * t.dtype.size / self.device.bandwidth + self.device.launch_s


def is_free_cast(shape: tuple[int, ...], a: Layout, b: Layout) -> bool:
    """Whether both layouts store the tensor in the same bytes: one spatial position and whole channel blocks."""
    if a.is_image or b.is_image:
        return a == b
    if a == b:
        return True
    return all(always_equal(d, 1) for d in shape[2:]) and all(_fills_blocks(shape, layout) for layout in (a, b))


def _fills_blocks(shape: tuple[int, ...], layout: Layout) -> bool:
    """Whether every lane of the layout's blocks holds an element."""
    return layout.is_row_major or (layout.is_packed and len(shape) >= 2 and always_equal(shape[1] % layout.pack, 0))


def pick_kernels(
    graph: Graph,
    device: DeviceInfo,
    strict: bool = False,
    memory: Memory | None = Memory.BUFFER,
    measured: Measured | None = None,
    tier: Tier = "optimized",
    builds: bool = True,
    answers: Answers | None = None,
) -> None:
    """Set `choice` of every node and the Place of every value. PlacementError in strict mode names the host nodes.

    `memory`, `measured`, `tier`, `builds` and `answers` as in `find_options`.
    """
    answers = answers or Answers(device)
    problem = _Problem(graph, device)
    hosted: dict[Node, str] = {}
    refusals: dict[Node, dict[str, str]] = {}

    def ask(node: Node) -> None:
        """Find the options of a node, or of its parts if the epilogue must be split off."""
        if isinstance(node.op, Reshape) and node.x.dtype.on_device:
            views = view_options(node, device, memory)
            # Generic kernels read and write row-major tensors: a packed view would need casts.
            consider(node, views[:1] if tier == "generic" else views, {})
        else:
            found = find_options(node, device, memory, measured, tier=tier, builds=builds, answers=answers)
            consider(node, *found)

    def consider(node: Node, options: list[Option], refused: dict[str, str]) -> None:
        if not options and node.epilogue is not None:
            for part in _unlink(graph, node):
                ask(part)
        else:
            refusals[node] = refused
            problem.options[node] = options or _on_host(node, hosted, refused, builds)

    for node in list(graph.nodes):
        ask(node)
    problem.find_uses()
    chosen = _cheapest(problem)
    while graph.trace is not None:
        # Nodes whose options do not serve other sizes; guards are recorded for the others.
        unfit = {node: why for node in graph.nodes if (why := confirm(node, device, chosen[node])) is not None}
        if not unfit:
            break
        for node, why in unfit.items():
            gone = chosen[node]
            assert gone.kernel is not None
            refused = refusals.pop(node) | {gone.kernel.name: why}
            options = problem.options.pop(node)
            consider(node, [o for o in options if (o.kernel, o.binding) != (gone.kernel, gone.binding)], refused)
        problem.find_uses()
        chosen = _cheapest(problem)
    if strict and hosted:
        lines = "\n".join(f"  {n.label}: {why}" for n, why in hosted.items())
        raise PlacementError(f"strict mode rejects nodes that would run on the host:\n{lines}")
    for node in graph.nodes:
        option = chosen[node]
        node.choice = Choice(option, problem.options[node], refusals[node], hosted.get(node, ""))
        for out, layout in zip(node.outputs, option.binding.outputs, strict=True):
            place = HOST if node in hosted else Place(Target.OPENCL, layout)
            out.type = out.type.with_place(place)
    for v in graph.inputs:
        v.type = v.type.with_place(HOST)


def _unlink(graph: Graph, node: Node) -> tuple[Node, Node]:
    """(the node without its epilogue, the epilogue as a node), inserted in `graph` in place of `node`.

    A pass fuses an epilogue that a kernel supports at the current sizes; at open sizes the kernel may refuse.
    """
    assert node.epilogue is not None
    arity = node.op.arity
    given = node.inputs[:arity]
    (made,) = node.op.infer_shape([None if v is None else v.type for v in given])
    own = node.with_(inputs=given, outputs=[new_value(node.y.name, made)], epilogue=None)
    own.outputs[0].producer = own
    rest = node.with_(op=Elementwise(node.epilogue), inputs=[own.y, *node.inputs[arity:]], epilogue=None)
    apply_patches(graph, [Patch.replacing(node, own, rest)], "unlink")
    return own, rest


def _on_host(node: Node, hosted: dict[Node, str], refused: Mapping[str, str], builds: bool) -> list[Option]:
    """The single option of a node without a kernel: the host."""
    flat = Binding(tuple(None if v is None else FLAT for v in node.inputs), tuple(FLAT for _ in node.outputs))
    if isinstance(node.op, HostOp):
        hosted[node] = node.op.reason or "the operator has no canonical form"
    elif node.host_dtype is not None:
        hosted[node] = only_on_host(node.host_dtype)
    else:
        hosted[node] = "; ".join(f"{k}: {why}" for k, why in refused.items()) or _NO_KERNEL[builds]
    return [Option(None, flat, HOST_SECONDS)]


def _cheapest(problem: _Problem) -> dict[Node, Option]:
    """The better result of both starts."""
    best: tuple[float, dict[Node, Option]] | None = None
    for prefer_packed in (True, False):
        chosen = {n: _start(o, prefer_packed) for n, o in problem.options.items()}
        total = _improve(problem, chosen)
        if best is None or total < best[0]:
            best = (total, chosen)
    assert best is not None
    return best[1]


def _start(options: list[Option], prefer_packed: bool) -> Option:
    preferred = [o for o in options if o.binding.outputs and o.binding.outputs[0].is_row_major != prefer_packed]
    return min(preferred or options, key=lambda o: o.seconds)


def _improve(problem: _Problem, chosen: dict[Node, Option]) -> float:
    stale = {node for node, options in problem.options.items() if len(options) > 1}
    for sweep in range(_SWEEPS):
        nodes = problem.graph.nodes if sweep % 2 == 0 else reversed(problem.graph.nodes)
        for node in nodes:
            if node not in stale:  # no neighbour changed since the last visit
                continue
            stale.remove(node)
            best, seconds = _best(problem, chosen, node)
            now = chosen[node]
            kept = _local_seconds(problem, chosen, node, now)
            cheaper = seconds < kept * (1 - 1e-9) or (seconds <= kept and _opens_casts(problem, best, now))
            if best is not now and cheaper:
                chosen[node] = best
                stale.update(n for n in problem.neighbours(node) if len(problem.options[n]) > 1)
        if not stale:
            break
    casts = sum(_input_casts(problem, chosen, node, option) for node, option in chosen.items())
    return sum(o.seconds for o in chosen.values()) + casts


def _best(problem: _Problem, chosen: dict[Node, Option], node: Node) -> tuple[Option, float]:
    """(cheapest option given the neighbours' choices, its seconds with casts)."""
    first, *others = problem.options[node]
    best, least = first, _local_seconds(problem, chosen, node, first)
    for option in others:
        if option.seconds >= least:  # later options are slower, and casts only add
            break
        seconds = _local_seconds(problem, chosen, node, option)
        if seconds < least:
            best, least = option, seconds
    return best, least


def _opens_casts(problem: _Problem, best: Option, now: Option) -> bool:
    """Whether to make a view between images row-major at equal cost, so that neighbours can share the view's casts."""
    row_major = best.kernel is None and best.binding.outputs[0].is_row_major
    return problem.device.prefers_images and row_major and not now.binding.outputs[0].is_row_major


def _layout_of(problem: _Problem, chosen: dict[Node, Option], v: Value) -> Layout:
    if v.producer is None:
        return FLAT
    return chosen[v.producer].binding.outputs[problem.numbers[v]]


def _input_casts(problem: _Problem, chosen: dict[Node, Option], node: Node, option: Option) -> float:
    total = 0.0
    for v, want in zip(node.inputs, option.binding.inputs, strict=True):
        if v is not None and not v.is_const and want is not None:
            total += problem.cast_seconds(v.type, _layout_of(problem, chosen, v), want)
    return total


def _local_seconds(problem: _Problem, chosen: dict[Node, Option], node: Node, option: Option) -> float:
    total = option.seconds + _input_casts(problem, chosen, node, option)
    for out, layout in zip(node.outputs, option.binding.outputs, strict=True):
        wanted = {chosen[user].binding.inputs[i] for user, i in problem.uses.get(out, ())}
        if out in problem.exposed:
            wanted.add(FLAT)
        total += sum(problem.cast_seconds(out.type, layout, want) for want in wanted if want is not None)
    return total
