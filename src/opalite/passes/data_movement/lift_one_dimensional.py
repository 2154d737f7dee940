"""Lift one-dimensional convolutions and pools, and what lies between them, to pictures of one row.

An image holds the channels of a picture [N,C,1,L] in its texels, but those of a sequence [N,C,L] in its rows.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.tensor_type import Shape
from ...ops.conv import Conv, ConvTranspose, Windowed
from ...ops.data_movement import Concat, Pad, Reshape, Slice
from ...ops.elementwise import Elementwise
from ...ops.normalize import BY_CHANNEL, Normalize
from ...ops.operator import Op
from ...ops.pool import Pool
from ...ops.reduce import Reduce
from ...ops.softmax import Softmax
from ..fusion.fold_into_conv import constant_like
from ..rewrite_driver import Added, Rule, Sweep, value_like

_ROW = 2  # the axis that is inserted


def lift_one_dimensional(device: DeviceInfo | None) -> Rule:
    """Rule for devices that prefer images: [N,C,L] becomes [N,C,1,L] around a run of operators on sequences.

    The Reshapes between two of them cancel; those at the ends are views of buffers.
    """
    if device is None or not device.prefers_images:
        return lambda node, sweep: None

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not node.inputs or node.get(0) is None or len(node.outputs) != 1 or node.epilogue is not None:
            return None
        rank = len(node.y.shape) if isinstance(node.op, Elementwise) else len(node.x.shape)
        begins = isinstance(node.op, Conv | ConvTranspose | Pool)
        if rank != 3 or not (begins or any(v is not None and _is_lowered(v) for v in node.inputs)):
            return None
        if isinstance(node.op, Conv | ConvTranspose) and not node.input(1).is_const:
            return "its filters are computed"
        op = _lifted_op(node)
        if op is None:
            return f"{node.op.name} has no form with a row"
        added = Added()
        streamed = 1 if isinstance(node.op, Windowed | Normalize) else len(node.inputs)
        inputs = [_lifted(v, node, added) if i < streamed else v for i, v in enumerate(node.inputs)]
        if isinstance(node.op, Conv | ConvTranspose):
            w = node.input(1)
            inputs[1] = constant_like(w, w.array.reshape(_with_row(w.shape)))
        (made,) = op.infer_shape([None if v is None else v.type for v in inputs])
        lifted = node.with_(op=op, inputs=inputs, outputs=[value_like(node.y, made.shape)])
        return Patch.replacing(node, *added, lifted, node.make_helper(Reshape(node.y.shape), [lifted.y]))

    return rule


def _with_row(shape: Shape) -> Shape:
    """A shape that broadcasts to [N,C,L] as one that broadcasts to [N,C,1,L]."""
    return shape if len(shape) < 2 else (*shape[:-1], 1, shape[-1])


def _is_lowered(v: Value) -> bool:
    """Whether `v` is a view of a picture of one row."""
    view = v.producer
    return view is not None and isinstance(view.op, Reshape) and view.x.shape == _with_row(v.shape) != v.shape


def _lifted(v: Value | None, node: Node, added: Added) -> Value | None:
    if v is None or len(v.shape) < 2:
        return v
    if v.is_const:
        return constant_like(v, v.array.reshape(_with_row(v.shape)))
    if _is_lowered(v) and v.producer is not None:
        return v.producer.x
    return added.put(node.make_helper(Reshape(_with_row(v.shape)), [v]))


def _lifted_op(node: Node) -> Op | None:
    """The operator of `node` on pictures of one row; None if it has no such form."""
    op = node.op

    def row(numbers: tuple[int, ...], one: int) -> tuple[int, ...]:
        return (*numbers[:_ROW], one, *numbers[_ROW:])

    if isinstance(op, Windowed):
        op = replace(op, strides=(1, *op.strides), pads=(0, op.pads[0], 0, op.pads[1]), dilations=(1, *op.dilations))
    match op:
        case Conv():
            return op
        case ConvTranspose():
            return replace(op, output_padding=(0, *op.output_padding))
        case Pool(with_indices=False):
            return replace(op, kernel=(1, *op.kernel))
        case Elementwise() if not op.expr.uses_coords:
            return replace(op, shape=_with_row(node.y.shape))
        case Concat():
            return replace(op, axis=op.axis + (op.axis >= _ROW))
        case Slice():
            return Slice(row(op.starts, 0), row(op.steps, 1), row(op.sizes, 1))
        case Pad():
            return replace(op, pads=(*row(op.pads[:3], 0), *row(op.pads[3:], 0)))
        case Reduce():
            axes = {axis + (axis >= _ROW) for axis in op.axes} | ({_ROW} if _ROW in op.axes else set())
            return replace(op, axes=tuple(sorted(axes)), keepdims=True)
        case Normalize(kind=kind) if kind in BY_CHANNEL:
            return op
        case Softmax():
            return replace(op, axis=op.axis + (op.axis >= _ROW))
    return None
