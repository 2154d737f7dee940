"""Recognise composites that exporters write out: layer normalisation and attention become one operator each."""

from __future__ import annotations

from ..expr.core import In, Lit
from ..ir.graph import Node, Value
from ..ir.patch import Patch
from ..ops.attention import Attention
from ..ops.elementwise import Elementwise
from ..ops.matmul import MatMul
from ..ops.movement import Transpose
from ..ops.normalize import Normalize
from ..ops.reduce import Reduce
from ..ops.softmax import Softmax
from .rewrite import Sweep, origins_between

Operand = Value | float


def single_call(value: Value | None) -> tuple[str, list[Operand], Node] | None:
    """(function, operands, node) if `value` comes from an Elementwise of one instruction."""
    node = value.producer if value is not None else None
    if node is None or not isinstance(node.op, Elementwise) or len(node.op.expr) != 1:
        return None
    expr = node.op.expr
    operands: list[Operand] = []
    for ref in expr.instrs[0].args:
        if isinstance(ref, In):
            operands.append(node.input(ref.i))
        elif isinstance(ref, Lit):
            operands.append(float(ref.value))
    return expr.instrs[0].fn, operands, node


def _mean_of(value: Operand) -> tuple[Value, tuple[int, ...]] | None:
    node = value.producer if isinstance(value, Value) else None
    if node is None or not isinstance(node.op, Reduce) or node.op.kind != "mean" or not node.op.keepdims:
        return None
    axes, rank = node.op.axes, len(node.x.shape)
    return (node.x, axes) if axes == tuple(range(axes[0], rank)) and node.epilogue is None else None


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
    found = single_call(node.outputs[0])
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
    op = Normalize("layer", epsilon=added[1][1], axis=mean[1][0])
    made = node.with_(op=op, inputs=[x, None, None], origin=origins_between([x], node))
    return Patch.replacing(node, made)


def recognise_attention(node: Node, sweep: Sweep) -> Patch | str | None:
    """softmax(q @ k^T * scale + mask) @ v on rank-4 tensors becomes Attention."""
    if not isinstance(node.op, MatMul) or node.op.trans_a or node.op.trans_b or node.epilogue is not None:
        return None
    softmax = node.x.producer
    if softmax is None or not isinstance(softmax.op, Softmax) or softmax.op.log or len(node.y.shape) != 4:
        return None
    if softmax.op.axis != 3 or sweep.only_use(node.x) is not node:
        return "the attention weights have other readers"
    scores, scale, mask = _scores(softmax.x, sweep, softmax)
    product = scores.producer
    if product is None or not isinstance(product.op, MatMul) or product.op.trans_a or product.epilogue is not None:
        return None
    q, kt, v = product.x, product.input(1), node.input(1)
    if not (len(q.shape) == len(kt.shape) == len(v.shape) == 4) or not q.dtype.is_float:
        return None
    added: list[Node] = []
    if product.op.trans_b:
        k = kt
    else:
        added.append(product.beside(Transpose((0, 1, 3, 2)), [kt]))
        k = added[0].y
    if q.shape[:2] != k.shape[:2] or q.shape[:2] != v.shape[:2]:
        return "heads are broadcast"
    op = Attention(scale, causal=False, softcap=0.0, blind_nan=True)
    made = node.with_(op=op, inputs=[q, k, v, mask], origin=origins_between([q, kt, v, mask], node))
    return Patch.replacing(node, *added, made)


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
            if b.producer is not None and isinstance(b.producer.op, MatMul):
                a, b = b, a
            if a.shape != node.y.shape or len(b.shape) > 4:
                return value, scale, mask
            value, mask = a, b
        else:
            return value, scale, mask
        reader = node
