"""Graph, Node and Value: the one representation from the importer to the planner.

A Graph is a list of Nodes in execution order over Values with known types. Only `Patch` (patch.py) and the
importer's builder edit one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtype import DType
from .precision import Precision
from .types import TensorType

if TYPE_CHECKING:
    from ..ops.base import Op


@dataclass(frozen=True, eq=False)
class Levels:
    """Integers that a constant was dequantised from: it is (q - zero) * scale, the three broadcasting."""

    q: np.ndarray[Any, Any]
    scale: np.ndarray[Any, Any]
    zero: np.ndarray[Any, Any] | None


@dataclass(eq=False)
class Value:
    """A tensor in the graph: a graph input, a constant (`data` set) or the output of one node.

    unnumbered: whether the graph that adopts it makes its name unique.
    """

    name: str
    type: TensorType
    data: np.ndarray[Any, Any] | None = None
    producer: Node | None = None
    levels: Levels | None = None
    unnumbered: bool = False

    @property
    def is_const(self) -> bool:
        """Known ahead of time."""
        return self.data is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Logical element type."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(eq=False)
class Node:
    """One operator. `name` is the model's own name for it, used in messages; `origin` the ONNX operators it came from.

    `epilogue`-capable operators carry the fused expression in attrs["epilogue"], its extra operands following
    the operator's own inputs. `precision` says how its float32 values are stored; `choice` is filled by picking.
    """

    op: Op
    inputs: list[Value | None]
    outputs: list[Value]
    attrs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    origin: str = ""
    choice: Any = None
    precision: Precision = Precision.FP32
    precision_reason: str = ""  # why float32 is kept though the policy is another

    def __post_init__(self) -> None:
        for out in self.outputs:
            out.producer = self

    @property
    def x(self) -> Value:
        """The first input."""
        return self.input(0)

    @property
    def y(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def input(self, i: int) -> Value:
        """Input `i`, which must be there."""
        v = self.inputs[i]
        assert v is not None, f"{self.label} has no input {i}"
        return v

    def get(self, i: int) -> Value | None:
        """Input `i`, or None where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    @property
    def label(self) -> str:
        """How messages call the node: operator and the model's own name."""
        return f"{self.origin or self.op.name} node '{self.name}'"

    def __repr__(self) -> str:
        return f"{self.outputs} = {self.op.name}({', '.join(v.name if v else '-' for v in self.inputs)})"


class Graph:
    """Inputs, outputs and nodes in execution order."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self._adopted = 0  # values that got a number so far
        self._taken: frozenset[str] | None = None  # names of the model's own that look like numbered ones

    def adopt(self, value: Value) -> Value:
        """`value`, its name made unique by a number of this graph if it awaits one: 'x' becomes 'x~7'.

        Numbers are counted within the graph, so that compiling a model again gives the same names.
        """
        if value.unnumbered:
            if self._taken is None:
                self._taken = frozenset(v.name for v in self.values() if "~" in v.name)
            stem = value.name
            while value.unnumbered or value.name in self._taken:
                value.name, value.unnumbered = f"{stem}~{self._adopted}", False
                self._adopted += 1
        return value

    def copy(self) -> Graph:
        """A graph of its own nodes and values; constants share their data, and no choices are taken along."""
        made: dict[Value, Value] = {}

        def copied(v: Value) -> Value:
            if v not in made:
                made[v] = Value(v.name, v.type, v.data, levels=v.levels)
            return made[v]

        other = Graph(self.name)
        other._adopted, other._taken = self._adopted, self._taken
        other.inputs = [copied(v) for v in self.inputs]
        for n in self.nodes:
            ins = [None if v is None else copied(v) for v in n.inputs]
            outs = [copied(v) for v in n.outputs]
            node = Node(n.op, ins, outs, dict(n.attrs), n.name, n.origin)
            node.precision, node.precision_reason = n.precision, n.precision_reason
            other.nodes.append(node)
        other.outputs = [copied(v) for v in self.outputs]
        return other

    def uses(self) -> Mapping[Value, list[Node]]:
        """Consumers of each value, in execution order; a value used twice by a node lists it once."""
        table: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in dict.fromkeys(node.inputs):
                if v is not None:
                    table.setdefault(v, []).append(node)
        return table

    def values(self) -> Iterable[Value]:
        """Every value once: inputs, constants and node outputs in order of first appearance."""
        seen: dict[Value, None] = dict.fromkeys(self.inputs)
        for node in self.nodes:
            for v in (*node.inputs, *node.outputs):
                if v is not None:
                    seen.setdefault(v)
        for v in self.outputs:
            seen.setdefault(v)
        return seen.keys()

    def sort(self) -> None:
        """Put nodes in execution order, keeping the present order where it already holds."""
        done: set[Node] = set()
        order: list[Node] = []
        for root in self.nodes:
            stack = [root]
            while stack:
                node = stack[-1]
                if node in done:
                    stack.pop()
                    continue
                waiting = [
                    v.producer
                    for v in node.inputs
                    if v is not None and v.producer is not None and v.producer not in done
                ]
                if waiting:
                    stack.extend(reversed(waiting))
                    if len(stack) > 4 * len(self.nodes) + 64:
                        raise ValueError(f"graph '{self.name}' has a cycle through {node.label}")
                else:
                    done.add(node)
                    order.append(node)
                    stack.pop()
        self.nodes = order

    def prune(self) -> int:
        """Drop nodes whose outputs nobody needs; returns how many went."""
        needed: set[Value] = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(out in needed for out in node.outputs):
                kept.append(node)
                needed.update(v for v in node.inputs if v is not None)
        removed = len(self.nodes) - len(kept)
        self.nodes = kept[::-1]
        return removed
