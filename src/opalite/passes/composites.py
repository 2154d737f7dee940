"""Recognise composites that exporters write out: layer normalisation and attention become one operator each."""

from __future__ import annotations

from ..expr.core import Expr, In, Lit
from ..ir.graph import Node, Value
from ..ir.names import fresh_value, output_like
from ..ir.patch import Patch
from ..ir.types import TensorType
from ..ops.base import get_op
from .rewrite import Sweep

Operand = Value | float


def single_call(value: Value | None) -> tuple[str, list[Operand], Node] | None:
    """(function, operands, node) if `value` comes from an Elementwise of one instruction."""
    node = value.producer if value is not None else None
    if node is None or node.op.name != "Elementwise" or len(node.attrs["expr"]) != 1:
        return None
    expr: Expr = node.attrs["expr"]
    operands: list[Operand] = []
    for ref in expr.instrs[0].args:
        if isinstance(ref, In):
            operands.append(node.input(ref.i))
        elif isinstance(ref, Lit):
            operands.append(float(ref.value))
    return expr.instrs[0].fn, operands, node


def _mean_of(value: Operand) -> tuple[Value, tuple[int, ...]] | None:
    node = value.producer if isinstance(value, Value) else None
    if node is None or node.op.name != "Reduce" or node.attrs["kind"] != "mean" or not node.attrs["keepdims"]:
        return None
    axes = tuple(node.attrs["axes"])
    rank = len(node.x.shape)
    return (node.x, axes) if axes == tuple(range(axes[0], rank)) and not node.attrs.get("epilogue") else None


def _is_centered(value: Operand, x: Value, axes: tuple[int, ...]) -> bool:
    found = single_call(value) if isinstance(value, Value) else None
    if found is None or found[0] != "sub" or found[1][0] is not x:
        return False
    return _mean_of(found[1][1]) == (x, axes)


def _squared(value: Value) -> Operand | None:
    found = single_call(value)
    if found is None:
        return None
    fn, (a, *rest), _ = found
    if (fn == "pow" and rest == [2.0]) or (fn == "mul" and rest and rest[0] is a):
        return a
    return None


def recognise_layer_norm(node: Node, sweep: Sweep) -> Patch | str | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) over the trailing axes becomes Normalize(layer)."""
    found = single_call(node.outputs[0]) if node.op.name == "Elementwise" else None
    if found is None or found[0] != "div" or not all(isinstance(v, Value) for v in found[1]):
        return None
    centered, deviation = found[1]
    top = single_call(centered) if isinstance(centered, Value) else None
    if top is None or top[0] != "sub" or not isinstance(top[1][0], Value):
        return None
    x = top[1][0]
    mean = _mean_of(top[1][1])
    if mean is None or mean[0] is not x:
        return None
    root = single_call(deviation) if isinstance(deviation, Value) else None
    if root is None or root[0] != "sqrt" or not isinstance(root[1][0], Value):
        return None
    added = single_call(root[1][0])
    if added is None or added[0] != "add" or not isinstance(added[1][0], Value) or not isinstance(added[1][1], float):
        return "no epsilon under the root"
    variance = _mean_of(added[1][0])
    if variance is None or variance[1] != mean[1]:
        return None
    inner = _squared(variance[0])
    if inner is None or not (inner is centered or _is_centered(inner, x, mean[1])):
        return None
    if x.shape != node.y.shape:
        return None
    out = output_like(node)
    attrs = {"kind": "layer", "axis": mean[1][0], "epsilon": added[1][1]}
    return Patch(
        [node],
        [Node(get_op("Normalize"), [x, None, None], [out], attrs, node.name, "LayerNormalization")],
        {node.y: out},
    )


def recognise_attention(node: Node, sweep: Sweep) -> Patch | str | None:
    """softmax(q @ k^T * scale + mask) @ v on rank-4 tensors becomes Attention."""
    if node.op.name != "MatMul" or node.attrs.get("trans_a") or node.attrs.get("trans_b") or node.attrs.get("epilogue"):
        return None
    softmax = node.x.producer
    if softmax is None or softmax.op.name != "Softmax" or softmax.attrs["log"] or len(node.y.shape) != 4:
        return None
    if softmax.attrs["axis"] != 3 or sweep.only_use(node.x) is not node:
        return "the attention weights have other readers"
    scores, scale, mask = _scores(softmax.x, sweep, softmax)
    product = scores.producer
    if product is None or product.op.name != "MatMul" or product.attrs.get("trans_a") or product.attrs.get("epilogue"):
        return None
    q, kt, v = product.x, product.input(1), node.input(1)
    if not (len(q.shape) == len(kt.shape) == len(v.shape) == 4) or not q.dtype.is_float:
        return None
    added: list[Node] = []
    if product.attrs.get("trans_b"):
        k = kt
    else:
        k = fresh_value(kt.name, TensorType(kt.dtype, (*kt.shape[:2], kt.shape[3], kt.shape[2])))
        added.append(Node(get_op("Transpose"), [kt], [k], {"perm": (0, 1, 3, 2)}, product.name, "Transpose"))
    if q.shape[:2] != k.shape[:2] or q.shape[:2] != v.shape[:2]:
        return "heads are broadcast"
    out = output_like(node)
    attrs = {"scale": scale, "causal": False, "softcap": 0.0, "blind_nan": True}
    added.append(Node(get_op("Attention"), [q, k, v, mask], [out], attrs, node.name, "Attention"))
    return Patch([node], added, {node.y: out})


def _scores(value: Value, sweep: Sweep, reader: Node) -> tuple[Value, float, Value | None]:
    """Undo `* scale` and `+ mask` on the way from the softmax to the product."""
    scale, mask = 1.0, None
    while True:
        found = single_call(value)
        if found is None or sweep.only_use(value) is not reader:
            return value, scale, mask
        fn, operands, node = found
        if fn in ("mul", "div") and isinstance(operands[0], Value) and isinstance(operands[1], float):
            scale = scale * operands[1] if fn == "mul" else scale / operands[1]
            value = operands[0]
        elif fn == "add" and mask is None and scale == 1.0 and all(isinstance(o, Value) for o in operands):
            a, b = (o for o in operands if isinstance(o, Value))
            if b.producer is not None and b.producer.op.name == "MatMul":
                a, b = b, a
            if a.shape != node.y.shape or len(b.shape) > 4:
                return value, scale, mask
            value, mask = a, b
        else:
            return value, scale, mask
        reader = node
