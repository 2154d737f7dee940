"""Driver of rewrite rules: sweeps over a graph until nothing changes, counts rewrites, logs refusals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .. import knobs
from ..ir.check_graph import check_graph
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph, Node, Origin, Value, new_value
from ..ir.patch import Patch, apply_patches
from ..ir.tensor_type import Shape, TensorType
from ..layout.kernel_candidates import Answers
from ..ops.data_movement import Reshape

Uses = Mapping[Value, list[Node]]


@dataclass(frozen=True)
class Rewrite:
    """One patch that a rule applied: texts of the nodes removed and added, and the model's nodes that they compute.

    lost: those of them that no node of the graph computes afterwards.
    """

    rule: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    origin: tuple[Origin, ...]
    lost: tuple[Origin, ...]


@dataclass
class Context:
    """State shared by the passes over one graph: options, the rewrite budget and rewrite counts.

    log: gets every rewrite, if it is a list. answers: what kernels answered so far, for one device and one plan.
    """

    check: bool = field(default_factory=lambda: bool(knobs.get("OPALITE_CHECK")))
    budget: int | None = field(default_factory=lambda: knobs.get("OPALITE_STOP_AFTER"))
    debug: int = field(default_factory=lambda: int(knobs.get("OPALITE_DEBUG")))
    applied: dict[str, int] = field(default_factory=dict)
    log: list[Rewrite] | None = None
    answers: Answers | None = None

    def answers_on(self, device: DeviceInfo) -> Answers:
        """The cache of kernels' answers on `device`, the same for all passes over the graph."""
        if self.answers is None or self.answers.device is not device:
            self.answers = Answers(device)
        return self.answers

    def spend(self, rule: str) -> bool:
        """Count one rewrite of `rule`; False if OPALITE_STOP_AFTER is used up."""
        if self.budget is not None:
            if self.budget <= 0:
                return False
            self.budget -= 1
        self.applied[rule] = self.applied.get(rule, 0) + 1
        return True


class Sweep:
    """Facts about the graph for rules: readers of each value, graph outputs, positions; cached for one sweep."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def uses(self) -> Uses:
        """Readers of each value."""
        return self.graph.uses()

    @cached_property
    def exposed(self) -> set[Value]:
        """Outputs of the graph."""
        return set(self.graph.outputs)

    @cached_property
    def position(self) -> Mapping[Node, int]:
        """Index of each node in execution order."""
        return {node: i for i, node in enumerate(self.graph.nodes)}

    def only_use(self, value: Value) -> Node | None:
        """The only reader of `value`; None if there are several or the value is a graph output."""
        users = self.uses.get(value, ())
        return users[0] if len(users) == 1 and value not in self.exposed else None


def maker_of(v: Value, reader: Node, sweep: Sweep) -> tuple[Node | None, list[Node]]:
    """(the node that computes `v` for `reader` alone, perhaps through a Reshape of its own; that Reshape, if any)."""
    between: list[Node] = []
    maker = v.producer if sweep.only_use(v) is reader else None
    if maker is not None and isinstance(maker.op, Reshape):
        between = [maker]
        maker = maker.x.producer if sweep.only_use(maker.x) is maker else None
    return maker, between


class Added(list[Node]):
    """New nodes of a patch, in order."""

    def put(self, node: Node) -> Value:
        """Append `node`; returns its output."""
        self.append(node)
        return node.y


def value_like(v: Value, shape: Shape) -> Value:
    """A new value with the name and element type of `v`."""
    return new_value(v.name, TensorType(v.dtype, shape))


def joined_origin(*nodes: Node) -> tuple[Origin, ...]:
    """The origins of several nodes, each ONNX node once."""
    return tuple(dict.fromkeys(o for n in nodes for o in n.origin))


def origins_between(inputs: Sequence[Value | None], node: Node) -> tuple[Origin, ...]:
    """Origins of all nodes between `inputs` and the output of `node`."""
    found: dict[Node, None] = {}
    stack = [node]
    while stack:
        each = stack.pop()
        if each not in found:
            found[each] = None
            before = [v for v in each.inputs if v is not None and v not in inputs]
            stack.extend(v.producer for v in before if v.producer is not None)
    return joined_origin(*reversed(found))


_MOST_SWEEPS = 100

Rule = Callable[[Node, Sweep], "Patch | str | None"]
"""A rule examines one node: a Patch to apply, a reason why it does not apply, or None if it does not match."""


def run_rule(graph: Graph, name: str, rule: Rule, ctx: Context) -> None:
    """Apply `rule` to all nodes until none matches. Patches of one sweep touch disjoint nodes."""
    for _ in range(_MOST_SWEEPS):
        sweep = Sweep(graph)
        touched: set[Node] = set()
        patches: list[Patch] = []
        for node in graph.nodes:
            if node in touched:
                continue
            found = rule(node, sweep)
            if isinstance(found, str):
                if ctx.debug >= 2:
                    print(f"opalite: {name}: {node.label}: {found}", file=sys.stderr)
                continue
            if found is None or touched.intersection(found.remove) or not ctx.spend(name):
                continue
            patches.append(found)
            touched.update(found.remove)
            for old in found.replace:
                touched.update(sweep.uses.get(old, ()))
            for added in found.add:
                touched.update(v.producer for v in added.inputs if v is not None and v.producer is not None)
        if not patches:
            return
        if ctx.log is None:
            apply_patches(graph, patches, name)
        else:
            ctx.log.extend(_apply_logged(graph, patches, name))
        if ctx.check:
            check_graph(graph, name)


def _apply_logged(graph: Graph, patches: Sequence[Patch], rule: str) -> list[Rewrite]:
    """Apply patches; returns a record of each, and of each node that nothing reads any more."""
    before = [*graph.nodes]
    texts = [tuple(map(_text, patch.remove)) for patch in patches]
    apply_patches(graph, patches, rule)
    left = {o for node in graph.nodes for o in node.origin}
    found = []
    for patch, removed in zip(patches, texts, strict=True):
        origin = joined_origin(*patch.remove, *patch.add)
        lost = tuple(o for o in origin if o not in left)
        found.append(Rewrite(rule, removed, tuple(map(_text, patch.add)), origin, lost))
    known = {*graph.nodes, *(n for patch in patches for n in patch.remove)}
    for node in before:
        if node in known:
            continue
        found.append(Rewrite(rule, (_text(node),), (), node.origin, tuple(o for o in node.origin if o not in left)))
    return found


def _text(node: Node) -> str:
    """A node in one line, with its epilogue, without the contents of constants."""
    inputs = ", ".join("-" if v is None else f"%{v.name}" for v in node.inputs)
    outputs = ", ".join(repr(v) for v in node.outputs)
    epilogue = "" if node.epilogue is None else f", epilogue {node.epilogue}"
    return f"{outputs} = {node.op!r}({inputs}){epilogue}"
