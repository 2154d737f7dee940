"""Structural comparison of graphs, for tests of passes."""

from __future__ import annotations

import numpy as np

from opalite.ir.graph import Graph, Node, Value
from opalite.ir.tensor_type import TensorType

from .graph_text import attr_text, node_attributes


def graphs_equal(a: Graph, b: Graph) -> str | None:
    """None if both graphs have the same nodes in the same order, else a sentence about the first difference.

    Types, places, attributes and the contents of constants are compared; names of values and nodes are not.
    """
    return _Comparison().graphs(a, b)


class _Comparison:
    def __init__(self) -> None:
        self.partner: dict[Value, Value] = {}  # value of the second graph by value of the first

    def graphs(self, a: Graph, b: Graph) -> str | None:
        if len(a.inputs) != len(b.inputs):
            return f"one graph has {len(a.inputs)} inputs, the other {len(b.inputs)}"
        for v, w in zip(a.inputs, b.inputs, strict=True):
            if v.type != w.type:
                return f"input %{v.name} is {_said(v.type)}, in the other graph %{w.name} is {_said(w.type)}"
            self.partner[v] = w
        for i, (m, n) in enumerate(zip(a.nodes, b.nodes, strict=False)):
            why = self.nodes(m, n)
            if why is not None:
                return f"node {i} ({m.op.name} of %{m.y.name}): {why}"
        if len(a.nodes) != len(b.nodes):
            longer = max(a.nodes, b.nodes, key=len)
            extra = longer[min(len(a.nodes), len(b.nodes))]
            return f"one graph has {len(a.nodes)} nodes, the other {len(b.nodes)}: {extra.op.name} of %{extra.y.name}"
        if len(a.outputs) != len(b.outputs):
            return f"one graph has {len(a.outputs)} outputs, the other {len(b.outputs)}"
        for i, (v, w) in enumerate(zip(a.outputs, b.outputs, strict=True)):
            why = self.values(v, w)
            if why is not None:
                return f"output {i}: {why}"
        return None

    def nodes(self, m: Node, n: Node) -> str | None:
        if type(m.op) is not type(n.op):
            return f"the other graph has {n.op.name} there"
        if len(m.inputs) != len(n.inputs) or len(m.outputs) != len(n.outputs):
            counts = [f"{len(k.inputs)} inputs and {len(k.outputs)} outputs" for k in (m, n)]
            return f"it has {counts[0]}, in the other graph {counts[1]}"
        for i, (v, w) in enumerate(zip(m.inputs, n.inputs, strict=True)):
            why = self.values(v, w)
            if why is not None:
                return f"input {i}: {why}"
        held = [node_attributes(k) for k in (m, n)]
        for key in sorted({*held[0], *held[1]}):
            texts = [attr_text(h[key]) if key in h else "absent" for h in held]
            if texts[0] != texts[1]:
                return f"attribute {key} is {texts[0]}, in the other graph {texts[1]}"
        for v, w in zip(m.outputs, n.outputs, strict=True):
            if v.type != w.type:
                return f"%{v.name} is {_said(v.type)}, in the other graph {_said(w.type)}"
            self.partner[v] = w
        return None

    def values(self, v: Value | None, w: Value | None) -> str | None:
        """The difference between two uses, or None."""
        if v is None or w is None:
            return None if v is w else "it is absent in one graph only"
        if v.data is None or w.data is None:
            same = v.data is None and w.data is None and self.partner.get(v) is w
            return None if same else f"it is %{v.name}, in the other graph %{w.name}"
        if v.type != w.type:
            return f"constant %{v.name} is {_said(v.type)}, in the other graph {_said(w.type)}"
        same_data = np.array_equal(v.data, w.data, equal_nan=v.data.dtype.kind == "f")
        return None if same_data else f"the contents of constant %{v.name} differ"


def _said(t: TensorType) -> str:
    return f"{t} @{t.place}"
