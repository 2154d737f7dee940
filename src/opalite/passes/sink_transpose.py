"""What takes little of a transposed tensor takes it from the tensor itself: the small result is transposed instead."""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..ir.names import fresh_value, output_like
from ..ir.patch import Patch
from ..ir.types import TensorType
from ..ops.base import get_op
from .rewrite import Sweep

_SHRINKS = 4  # times at least that the result is smaller


def sink_transpose(node: Node, sweep: Sweep) -> Patch | str | None:
    """Reduce, Slice or Gather of a transpose becomes a transpose of the other; slices before a Reduce go along."""
    name = node.op.name
    if name not in ("Reduce", "Slice", "Gather") or _SHRINKS * node.y.type.count > node.x.type.count:
        return None
    slices: list[Node] = []
    x: Value = node.x
    while name == "Reduce" and x.producer is not None and x.producer.op.name == "Slice":
        if sweep.only_use(x) is not (slices[-1] if slices else node):
            break
        slices.append(x.producer)
        x = x.producer.x
    turn = x.producer
    if turn is None or turn.op.name != "Transpose":
        return None
    perm = turn.attrs["perm"]
    added: list[Node] = []
    value = turn.x
    for cut in reversed(slices):
        value = _append(added, cut, [value], _slice_attrs(cut, perm))
    if name == "Reduce":
        axes = tuple(sorted(perm[a] for a in node.attrs["axes"]))
        left = [k for k in range(len(perm)) if node.attrs["keepdims"] or k not in axes]
        attrs, order = {**node.attrs, "axes": axes}, [left.index(k) for k in perm if k in left]
    elif name == "Slice":
        attrs, order = _slice_attrs(node, perm), list(perm)
    else:
        axis, rank = node.attrs["axis"], len(node.input(1).shape)
        taken = perm[axis]  # its place is taken by the axes of the indices
        attrs = {**node.attrs, "axis": taken}
        order = [k + rank - 1 if k > taken else k for k in perm]
        order[axis : axis + 1] = range(taken, taken + rank)
    value = _append(added, node, [value, *node.inputs[1:]], attrs)
    out = output_like(node)
    added.append(Node(get_op("Transpose"), [value], [out], {"perm": tuple(order)}, node.name, "Transpose"))
    return Patch([*slices, node], added, {node.y: out})


def _slice_attrs(node: Node, perm: tuple[int, ...]) -> dict[str, object]:
    """Of the slice that does before the transpose what `node` does after it."""
    order = sorted(range(len(perm)), key=perm.__getitem__)
    return {what: tuple(node.attrs[what][k] for k in order) for what in ("starts", "steps", "sizes")}


def _append(added: list[Node], like: Node, inputs: list[Value | None], attrs: dict[str, object]) -> Value:
    """The output of a new node like `like`, whose type follows from its inputs."""
    (found,) = like.op.infer_shape(attrs, [None if v is None else v.type for v in inputs])
    out = fresh_value(like.y.name, TensorType(like.y.dtype, found.shape))
    added.append(Node(like.op, inputs, [out], attrs, like.name, like.origin))
    return out
