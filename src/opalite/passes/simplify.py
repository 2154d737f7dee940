"""Simplify: remove what does nothing and join movements that can be one."""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..ir.names import fresh_value, output_like
from ..ir.patch import Patch
from ..ir.types import Shape, TensorType
from ..ops.base import get_op
from .rewrite import Sweep


def remove_noop(node: Node, sweep: Sweep) -> Patch | str | None:
    """Identity elementwise, same-shape reshape, identity transpose, whole slice, zero pad, concat of one."""
    if not node.inputs or node.inputs[0] is None:
        return None
    x = node.inputs[0]
    if not _does_nothing(node, x) or not x.type.fits(node.y.type):
        return None
    return Patch(remove=[node], replace={node.y: x})


def _does_nothing(node: Node, x: Value) -> bool:
    a = node.attrs
    match node.op.name:
        case "Elementwise":
            return len(a["expr"]) == 0
        case "Reshape":
            return x.shape == node.y.shape
        case "Transpose":
            return tuple(a["perm"]) == tuple(range(len(x.shape)))
        case "Slice":
            return x.shape == node.y.shape and all(s == 1 for s, n in zip(a["steps"], x.shape, strict=True) if n > 1)
        case "Pad":
            return not any(a["pads"])
        case "Concat":
            return len(node.inputs) == 1
    return False


def drop_empty_inputs(node: Node, sweep: Sweep) -> Patch | str | None:
    """Concat without its zero-size inputs."""
    if node.op.name != "Concat" or len(node.inputs) < 2:
        return None
    kept = [v for v in node.inputs if v is not None and v.type.count]
    if len(kept) == len(node.inputs) or not kept:
        return None
    out = output_like(node)
    return Patch([node], [Node(node.op, list(kept), [out], dict(node.attrs), node.name, node.origin)], {node.y: out})


def join_movement(node: Node, sweep: Sweep) -> Patch | str | None:
    """Transpose of transpose, reshape of reshape become one; a transpose of size-1 axes only becomes a reshape."""
    name = node.op.name
    if name not in ("Transpose", "Reshape"):
        return None
    x = node.x
    if name == "Transpose":
        perm = node.attrs["perm"]
        moved = [p for p in perm if x.shape[p] != 1]
        if moved == sorted(moved):
            return _replaced(node, "Reshape", x, {"shape": node.y.shape})
    before = x.producer
    if before is None or before.op.name != name:
        return None
    if name == "Reshape":
        return _replaced(node, name, before.x, {"shape": node.y.shape})
    inner = before.attrs["perm"]
    return _replaced(node, name, before.x, {"perm": tuple(inner[p] for p in node.attrs["perm"])})


def sink_reshape(node: Node, sweep: Sweep) -> Patch | str | None:
    """A reshape before an Elementwise moves behind it, so that the expression meets the node that computes its input.

    The other operands are reshaped, which moves nothing, or broadcast alike in both shapes.
    """
    if node.op.name != "Elementwise" or node.attrs["expr"].uses_coords:
        return None
    for i, v in enumerate(node.inputs):
        if v is None or v.shape != node.y.shape or v.producer is None or sweep.only_use(v) is not node:
            continue
        view = v.producer
        if view.op.name != "Reshape" or view.x.producer is None or view.x.producer.op.name not in _SINKS:
            continue
        if sweep.only_use(view.x) is not view:
            continue
        shape, added = view.x.shape, list[Node]()
        operands = [
            view.x if k == i else _reshaped(other, node.y.shape, shape, added) for k, other in enumerate(node.inputs)
        ]
        if any(o is None for o in operands):
            continue
        inner, out = fresh_value(node.y.name, TensorType(node.y.dtype, shape)), output_like(node)
        attrs = {**node.attrs, "shape": shape}
        added.append(Node(node.op, operands, [inner], attrs, node.name, node.origin))
        added.append(Node(get_op("Reshape"), [inner], [out], {"shape": node.y.shape}, node.name, "Reshape"))
        return Patch([node], added, {node.y: out})
    return None


_SINKS = ("MatMul", "Elementwise")  # what computes inputs of expressions, in layouts that any reshape keeps


def _reshaped(v: Value | None, before: Shape, after: Shape, added: list[Node]) -> Value | None:
    """An operand of an expression on `before` for one on `after`; None if no view of it broadcasts as it did."""
    if v is None:
        return None
    if v.shape == before:
        out = fresh_value(v.name, TensorType(v.dtype, after))
        added.append(Node(get_op("Reshape"), [v], [out], {"shape": after}, v.name, "Reshape"))
        return out
    alike = not v.shape or (len(v.shape) == 1 and before[-1:] == after[-1:])
    return v if alike and len(v.shape) <= len(after) else None


def _replaced(node: Node, op: str, x: Value, attrs: dict[str, object]) -> Patch:
    out = output_like(node)
    return Patch([node], [Node(get_op(op), [x], [out], attrs, node.name, node.origin)], {node.y: out})
