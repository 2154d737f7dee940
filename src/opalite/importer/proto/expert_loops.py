"""Loops over experts as PyTorch's exporters unroll them: for each expert, NonZero finds the tokens that picked it.

    acc += at the tokens of expert e: weight[token, slot] * network_e(x[token])        for e = 0, 1, ... experts - 1

The rows of an expert are an axis of unknown length. `find_expert_loops` finds the loops in which every expert computes
the same on its rows, but for constants, and no row depends on another. Then one network with the matrices of the picked
experts serves all pairs of a token and a slot (`group_experts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .graphdef import GraphDef, NodeDef

_SMALL = 1 << 12
"""Elements up to which constants of two experts are compared; larger ones count as different."""
_DEPTH = 24
"""Longest path of nodes by which two experts may compute the same sizes apart."""


@dataclass(frozen=True)
class Step:
    """One expert's part: `rows` are added to `before` at the rows `index`, which gives `after`.

    adds: a row that is named twice is added twice.
    """

    before: str
    index: str
    rows: str
    after: str
    nodes: tuple[NodeDef, ...]
    adds: bool = False


@dataclass(frozen=True)
class Mask:
    """Condition by which an expert finds its tokens.

    picks: of all tokens. order: the axes of the mask, "t" for tokens, "s" for slots. experts: their number.
    """

    picks: str
    expert: int
    order: str
    experts: int


@dataclass
class ExpertLoop:
    """A loop over experts. finder: the NonZero node of the first expert; nodes: what else it computes of its rows.

    constants: for an input of such a node, the names of what each expert has there, by the node's first output and the
    input's number.
    """

    picks: str
    steps: Sequence[Step]
    finder: NodeDef
    nodes: Sequence[NodeDef]
    mask: Mask
    constants: dict[tuple[str, int], list[str]] = field(default_factory=dict)


class GraphIndex:
    """Producers and readers of the names of one graph."""

    def __init__(self, graph: GraphDef) -> None:
        self.graph = graph
        self.producer: dict[str, NodeDef] = {o: n for n in graph.nodes for o in n.outputs if o}
        self.place = {n: i for i, n in enumerate(graph.nodes)}
        self.readers: dict[str, list[NodeDef]] = {}
        for node in graph.nodes:
            for name in node.reads:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {v.name for v in graph.outputs}

    def made_by(self, name: str, *op_types: str) -> NodeDef | None:
        """Return the node of ai.onnx that computes `name`, if it is one of `op_types`."""
        node = self.producer.get(name)
        return node if node is not None and not node.domain and node.op_type in op_types else None

    def numbers(self, name: str) -> list[Any] | None:
        """Return the elements of a small constant, else None."""
        if name not in self.graph.constants:
            return None
        held = self.graph.constants.held(name)
        if np.prod(held.shape, dtype=np.int64) > _SMALL:
            return None
        return list(np.asarray(self.graph.constants[name]).reshape(-1).tolist())

    def number(self, name: str) -> Any:
        """Return the one element of a constant, else None."""
        found = self.numbers(name)
        return found[0] if found is not None and len(found) == 1 else None

    def passed(self, name: str, *op_types: str) -> str:
        """Follow `name` back through nodes that pass their first input on."""
        while (node := self.made_by(name, *op_types)) is not None:
            name = node.inputs[0]
        return name

    def is_zero(self, name: str) -> bool:
        """Whether all elements are zero, of whatever shape."""
        if (numbers := self.numbers(name)) is not None:
            return not any(numbers)
        node = self.made_by(name, "ConstantOfShape", "Expand", "Identity", "Cast")
        if node is None:
            return False
        if node.op_type == "ConstantOfShape":
            return not np.any(node.attrs.get("value", 0))
        return self.is_zero(node.inputs[0])


def find_expert_loops(index: GraphIndex) -> Iterator[ExpertLoop]:
    """Yield the loops over experts of one graph."""
    if not any(n.op_type == "NonZero" for n in index.graph.nodes):
        return
    steps = list(_steps(index))
    made = {s.after for s in steps}
    following = {s.before: s for s in steps if s.before in made}
    for first in steps:
        if first.before in made:
            continue
        chain = [first]
        while (step := following.get(chain[-1].after)) is not None:
            chain.append(step)
        if len(chain) > 1 and (loop := _loop(index, chain)) is not None:
            yield loop


def _steps(index: GraphIndex) -> Iterator[Step]:
    """Yield the additions of rows at an index: scattered into zeros and added, or by the reduction "add"."""
    for node in index.graph.nodes:
        if node.domain or node.op_type not in ("ScatterElements", "ScatterND"):
            continue
        data, at, rows = node.inputs[:3]
        out = node.outputs[0]
        if node.op_type == "ScatterElements" and node.attrs.get("axis", 0) != 0:
            continue
        if node.attrs.get("reduction", "none") == "add":
            yield Step(data, at, rows, out, (node,), adds=True)
        elif node.op_type == "ScatterElements" and index.is_zero(data):
            readers = index.readers.get(out, [])
            if len(readers) == 1 and readers[0].op_type == "Add" and out not in index.outputs:
                before = next((n for n in readers[0].inputs if n != out), out)
                yield Step(before, at, rows, readers[0].outputs[0], (node, readers[0]))
        elif node.op_type == "ScatterND":  # x[at] += rows
            shaped = index.made_by(rows, "Reshape")
            total = index.made_by(rows if shaped is None else shaped.inputs[0], "Add")
            for old, new in () if total is None else (total.inputs, total.inputs[::-1]):
                found = index.made_by(old, "GatherND", "Gather")
                if found is not None and found.inputs[0] == data:
                    yield Step(data, at, new, out, tuple(n for n in (node, shaped, total, found) if n is not None))


def _loop(index: GraphIndex, steps: Sequence[Step]) -> ExpertLoop | None:
    """Return the loop of these steps in a row, or None if its experts differ in more than constants."""
    finders = [_finder(index, s.index) for s in steps]
    masks = [None if f is None else find_mask(index, f.inputs[0]) for f in finders]
    first, mask = finders[0], masks[0]
    if first is None or mask is None:
        return None
    if {m and (m.picks, m.order, m.experts) for m in masks} != {(mask.picks, mask.order, mask.experts)}:
        return None
    if sorted(m.expert for m in masks if m) != list(range(mask.experts)) or len(steps) != mask.experts:
        return None
    if not all(s.adds for s in steps) and not _are_distinct(index, mask.picks):
        return None
    nodes = _between(index, first, steps[0])
    if nodes is None:
        return None
    compared = _Comparison(index, {o for n in (first, *nodes) for o in n.outputs})
    order = sorted(range(len(steps)), key=lambda i: masks[i].expert)  # type: ignore[union-attr]
    for i in order:
        step, finder = steps[i], finders[i]
        assert finder is not None
        compared.begin({steps[0].before: step.before, first.outputs[0]: finder.outputs[0]})
        if not (compared.same(steps[0].index, step.index) and compared.same(steps[0].rows, step.rows)):
            return None
    return ExpertLoop(mask.picks, steps, first, nodes, mask, compared.constants())


def _finder(index: GraphIndex, name: str) -> NodeDef | None:
    """Return the NonZero node that the index of a step comes from."""
    passed = ("Squeeze", "Unsqueeze", "Reshape", "Expand", "Cast", "Slice", "Split", "Gather", "Transpose", "Concat")
    return index.made_by(index.passed(name, *passed), "NonZero")


def find_mask(index: GraphIndex, name: str) -> Mask | None:
    """Return what a mask of one expert was made of: a row of one-hot picks, or a comparison with the expert."""
    name = index.passed(name, "Cast", "Identity")
    if (node := index.made_by(name, "Equal")) is not None:
        for picks, other in (node.inputs, node.inputs[::-1]):
            expert, experts = index.number(other), _experts_of(index, picks)
            if expert is not None and experts:
                return Mask(picks, int(expert), "ts", experts)
        return None
    if (node := index.made_by(index.passed(name, "Squeeze"), "Gather")) is None:
        return None
    expert = index.number(node.inputs[1])
    hot, perm = index.passed(node.inputs[0], "Cast"), (0, 1, 2)
    if (moved := index.made_by(hot, "Transpose")) is not None:
        perm, hot = tuple(moved.attrs.get("perm", (2, 1, 0))), index.passed(moved.inputs[0], "Cast")
    found = _one_hot(index, hot)
    axis = int(node.attrs.get("axis", 0))
    if expert is None or found is None or len(perm) != 3 or perm[axis] != 2:
        return None
    order = "".join("ts"[p] for p in perm if p != 2)
    return Mask(found[0], int(expert), order, found[1])


def _one_hot(index: GraphIndex, name: str) -> tuple[str, int] | None:
    """Return (picks, experts) of picks [T,S] as one-hot [T,S,experts]."""
    if (node := index.made_by(name, "OneHot")) is not None:
        depth, values = index.number(node.inputs[1]), index.numbers(node.inputs[2])
        if depth is not None and values == [0, 1] and node.attrs.get("axis", -1) in (-1, 2):
            return node.inputs[0], int(depth)
    if (node := index.made_by(name, "Equal")) is not None:
        for wide, other in (node.inputs, node.inputs[::-1]):
            numbers, made = index.numbers(other), index.made_by(wide, "Unsqueeze")
            if made is not None and index.number(made.inputs[1]) in (-1, 2) and numbers:
                return (made.inputs[0], len(numbers)) if numbers == list(range(len(numbers))) else None
    return None


def _are_distinct(index: GraphIndex, picks: str) -> bool:
    """Whether a token's picks differ: the best scores, or the best one and the best of the others."""
    name = index.passed(picks, "Cast", "Identity")
    parts = index.made_by(name, "Concat")
    several = parts is not None and all(index.made_by(n, "ArgMax") is not None for n in parts.inputs)
    return several or index.made_by(name, "TopK", "ArgMax") is not None


def _experts_of(index: GraphIndex, picks: str) -> int:
    """Return the number of scores among which picks are chosen, by the router's matrix; 0 if unknown."""
    node = index.made_by(index.passed(picks, "Cast", "Identity"), "TopK")
    waiting = [] if node is None else [node.inputs[0]]
    for name in waiting:  # which grows
        made = index.producer.get(name)
        if made is None or len(waiting) > _DEPTH:
            continue
        if made.op_type in ("MatMul", "Gemm") and made.inputs[1] in index.graph.constants:
            shape = index.graph.constants.held(made.inputs[1]).shape
            return int(shape[0 if made.attrs.get("transB") else -1])
        if made.op_type in ("Softmax", "Sigmoid", "Cast", "Add", "Mul", "Div", "Identity", "Reshape", "Where"):
            waiting += made.inputs[1:] if made.op_type == "Where" else made.inputs[: 1 + (made.op_type != "Reshape")]
    return 0


def _between(index: GraphIndex, finder: NodeDef, step: Step) -> list[NodeDef] | None:
    """Return the nodes that depend on `finder` up to the step, in order; None if others read them."""
    found: dict[NodeDef, None] = {}
    waiting = [o for o in finder.outputs if o]
    while waiting:
        name = waiting.pop()
        if name in index.outputs:
            return None
        for node in index.readers.get(name, []):
            if node in step.nodes or node in found:
                continue
            if node.graphs or step.after in node.outputs:
                return None
            found[node] = None
            waiting += [o for o in node.outputs if o]
    return sorted(found, key=lambda n: index.place[n])


class _Comparison:
    """Compares what another expert computes with what the first does; constants may differ.

    taken: names that depend on the first expert's rows.
    """

    def __init__(self, index: GraphIndex, taken: set[str]) -> None:
        self._index, self._taken = index, taken
        self._pairs: dict[str, str] = {}
        self._found: dict[tuple[str, int], list[str]] = {}

    def begin(self, pairs: Mapping[str, str]) -> None:
        """Begin another expert, perhaps the first itself. pairs: names that correspond."""
        self._pairs = dict(pairs)

    def constants(self) -> dict[tuple[str, int], list[str]]:
        """Return the names that each expert has at an input, for inputs that differ."""
        return {at: names for at, names in self._found.items() if len(set(names)) > 1}

    def same(self, a: str, b: str, depth: int = 0) -> bool:
        """Whether name `b` of this expert is computed as `a` of the first."""
        if a in self._pairs:
            return self._pairs[a] == b
        if a == b and a not in self._taken:
            return True
        if not a or not b or depth > _DEPTH:
            return False
        one, other = self._index.producer.get(a), self._index.producer.get(b)
        if one is None or other is None or not _alike(one, other):
            return False
        if one.outputs.index(a) != other.outputs.index(b):
            return False
        self._pairs.update(zip(one.outputs, other.outputs, strict=True))
        inside = a in self._taken
        for i, (x, y) in enumerate(zip(one.inputs, other.inputs, strict=True)):
            constants = self._index.graph.constants
            if x in constants and y in constants:
                if inside:
                    self._add(one, i, y)
                if x == y or (inside and constants.held(x).shape == constants.held(y).shape):
                    continue
                if self._index.numbers(x) is None or self._index.numbers(x) != self._index.numbers(y):
                    return False
            elif not self.same(x, y, 0 if inside else depth + 1):
                return False
        return True

    def _add(self, node: NodeDef, i: int, name: str) -> None:
        names = self._found.setdefault((node.outputs[0], i), [])
        same = names and self._equal(names[-1], name)
        names.append(names[-1] if same else name)

    def _equal(self, a: str, b: str) -> bool:
        numbers = self._index.numbers(a)
        shapes = {self._index.graph.constants.held(n).shape for n in (a, b)}
        return a == b or (numbers is not None and len(shapes) == 1 and numbers == self._index.numbers(b))


def _alike(a: NodeDef, b: NodeDef) -> bool:
    kinds = {(n.op_type, n.domain, n.version, len(n.inputs), len(n.outputs), frozenset(n.attrs)) for n in (a, b)}
    return len(kinds) == 1 and all(np.array_equal(v, b.attrs[k]) for k, v in a.attrs.items()) and not a.graphs
