"""A small way to write graphs in tests, and to run them by the operators' references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opalite.expr.trace_function import call, trace
from opalite.ir import DType, Graph, Node, TensorType, Value
from opalite.ir.graph import Origin
from opalite.ops.elementwise import run_reference
from opalite.ops.operator import make_op


class GraphMaker:
    """Builds a Graph node by node; every method returns the new Value."""

    def __init__(self) -> None:
        self.graph = Graph("test")
        self.rng = np.random.default_rng(7)

    def input(self, name: str, *shape: int, dtype: DType = DType.FLOAT32) -> Value:
        v = Value(name, TensorType(dtype, shape))
        self.graph.inputs.append(v)
        return v

    def const(self, name: str, array: Any) -> Value:
        data = np.asarray(array)
        return Value(name, TensorType(DType.of(data), data.shape), data)

    def noise(self, name: str, *shape: int) -> Value:
        return self.const(name, self.rng.standard_normal(shape).astype(np.float32))

    def add(self, name: str, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        node = Node(make_op(op, attrs), list(inputs), [], name=name, origin=(Origin(op, name),))
        out = Value(name, node.infer()[0], producer=node)
        node.outputs.append(out)
        self.graph.nodes.append(node)
        return out

    def map(self, name: str, fn: Any, *inputs: Value) -> Value:
        expr = call(fn, *(v.dtype for v in inputs)) if isinstance(fn, str) else trace(fn, *(v.dtype for v in inputs))
        return self.add(name, "Elementwise", *inputs, expr=expr)

    def conv(self, name: str, x: Value, channels: int, kernel: int = 3, pad: int | None = None, **attrs: Any) -> Value:
        w = self.noise(f"{name}.w", channels, x.shape[1] // attrs.get("group", 1), kernel, kernel)
        p = kernel // 2 if pad is None else pad
        given = {"strides": (1, 1), "pads": (p, p, p, p), "dilations": (1, 1), "group": 1, **attrs}
        return self.add(name, "Conv", x, w, self.noise(f"{name}.b", channels), **given)

    def done(self, *outputs: Value) -> Graph:
        self.graph.outputs = list(outputs)
        return self.graph


def run_graph(graph: Graph, feeds: dict[str, Any]) -> list[Any]:
    """Outputs of the graph by the operators' NumPy references."""
    env: dict[Value, Any] = {v: feeds[v.name] for v in graph.inputs}

    def value(v: Value | None) -> Any:
        return None if v is None else v.data if v.data is not None else env[v]

    for node in graph.nodes:
        outs = run_reference(node.op, node.epilogue, [value(v) for v in node.inputs])
        env.update(zip(node.outputs, outs, strict=False))
    return [value(v) for v in graph.outputs]


def operators(graph: Graph) -> list[str]:
    """Names of the operators in order."""
    return [n.op.name for n in graph.nodes]


def feeds_for(graph: Graph, seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {v.name: rng.standard_normal(v.shape).astype(v.dtype.np) for v in graph.inputs}


def check_same(before: Sequence[Any], after: Sequence[Any], tolerance: float = 1e-4) -> None:
    for a, b in zip(before, after, strict=True):
        largest = np.abs(a[np.isfinite(a)]).max(initial=1e-9)
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * float(largest))
