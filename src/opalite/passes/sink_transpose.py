"""A reduction reads past the transpose before it: what is transposed afterwards is its small result."""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..ir.patch import Patch
from ..ir.types import TensorType
from ..ops.base import get_op
from .names import fresh_value, output_like
from .rewrite import Sweep

_SHRINKS = 4  # times at least that the reduction makes its input smaller


def sink_transpose(node: Node, sweep: Sweep) -> Patch | str | None:
    """Reduce of a transpose, with slices of its own between them, becomes transpose of Reduce."""
    if node.op.name != "Reduce" or _SHRINKS * node.y.type.count > node.x.type.count:
        return None
    slices: list[Node] = []
    x: Value = node.x
    while x.producer is not None and x.producer.op.name == "Slice" and sweep.only_use(x) is (slices or [node])[-1]:
        slices.append(x.producer)
        x = x.producer.x
    turn = x.producer
    if turn is None or turn.op.name != "Transpose":
        return None
    perm = turn.attrs["perm"]
    order = sorted(range(len(perm)), key=perm.__getitem__)  # axis k of the transpose's input is axis order[k] after it
    added: list[Node] = []
    value = turn.x
    for cut in reversed(slices):
        attrs = {what: tuple(cut.attrs[what][k] for k in order) for what in ("starts", "steps", "sizes")}
        out = fresh_value(cut.y.name, TensorType(value.dtype, attrs["sizes"]))
        added.append(Node(cut.op, [value], [out], attrs, cut.name, cut.origin))
        value = out
    axes = tuple(sorted(perm[a] for a in node.attrs["axes"]))
    keeps = bool(node.attrs["keepdims"])
    left = [
        k for k in range(len(perm)) if keeps or k not in axes
    ]  # axes of the result, as the transpose's input has them
    shape = tuple(1 if k in axes else value.shape[k] for k in left)
    reduced = fresh_value(node.y.name, TensorType(node.y.dtype, shape))
    added.append(Node(node.op, [value], [reduced], {**node.attrs, "axes": axes}, node.name, node.origin))
    turned = tuple(left.index(k) for k in perm if k in left)
    out = output_like(node)
    added.append(Node(get_op("Transpose"), [reduced], [out], {"perm": turned}, node.name, "Transpose"))
    return Patch([*slices, node], added, {node.y: out})
