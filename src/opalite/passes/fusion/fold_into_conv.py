"""Fold padding into convolutions, and per-channel scales and shifts into convolutions and normalizations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...expr.expression import Expr, In, Instr, Lit, Ref, Tmp
from ...expr.trace_function import Builder
from ...ir.constants.lazy_array import Array
from ...ir.dtype import DType
from ...ir.graph import Node, Origin, Value, new_value
from ...ir.patch import Patch
from ...ir.tensor_type import TensorType
from ...ops.conv import Conv, ConvTranspose, neutral_zeros
from ...ops.data_movement import Pad
from ...ops.elementwise import Elementwise
from ...ops.normalize import BY_CHANNEL, Normalize
from ...ops.pool import Pool
from ..rewrite_driver import Sweep, joined_origin


def fold_affine(node: Node, sweep: Sweep) -> Patch | str | None:
    """Fold leading mul/div/add/sub by per-channel constants of a Conv's or Normalize's only reader into that node."""
    if not isinstance(node.op, Elementwise):
        return None
    for i, v in enumerate(node.inputs):
        conv = v.producer if v is not None else None
        if v is None or conv is None or not _has_channel_scale(conv) or conv.epilogue is not None:
            continue
        if sweep.only_use(v) is not node or v.shape != node.y.shape:
            continue
        if not v.dtype.is_float or any(p is not None and not p.is_const for p in conv.inputs[1:3]):
            continue
        with np.errstate(all="ignore"):  # non-finite scales are not folded
            patch = _peel(node, node.op, i, conv)
        if patch is not None:
            return patch
    return None


def _has_channel_scale(node: Node) -> bool:
    op = node.op
    return isinstance(op, Conv | ConvTranspose) or (isinstance(op, Normalize) and op.kind in BY_CHANNEL)


def _peel(node: Node, op: Elementwise, operand: int, conv: Node) -> Patch | None:
    expr = op.expr
    channels = conv.y.shape[1]
    scale: Array = np.ones(channels)
    shift: Array = np.zeros(channels)
    current: Ref = In(operand)
    peeled = 0
    while True:
        step = _next_affine(expr, current, node, channels)
        if step is None:
            break
        k, fn, constant, swapped = step
        if fn == "mul":
            scale, shift = scale * constant, shift * constant
        elif fn == "div":
            scale, shift = scale / constant, shift / constant
        elif fn == "add":
            shift = shift + constant
        elif swapped:  # constant - x
            scale, shift = -scale, constant - shift
        else:
            shift = shift - constant
        current = Tmp(k)
        peeled += 1
    if not peeled or not np.all(np.isfinite(scale)) or not np.all(np.isfinite(shift)):
        return None
    scaled = _scaled_norm if isinstance(conv.op, Normalize) else _scaled_conv
    new_conv = scaled(conv, scale, shift, joined_origin(conv, node))
    rest = _rewritten(expr, expr.dtypes, {current: In(operand)})
    if isinstance(expr.result, Tmp) and isinstance(current, Tmp) and expr.result.k == current.k:
        return Patch.replacing(node, new_conv, also=[conv])
    inputs = list(node.inputs)
    inputs[operand] = new_conv.y
    tail = with_expression(node, replace(op, expr=rest), inputs)
    return Patch.replacing(node, new_conv, tail, also=[conv])


def _next_affine(expr: Expr, current: Ref, node: Node, channels: int) -> tuple[int, str, Array, bool] | None:
    """(instruction, function, constant, swapped) of the only reader of `current`, if affine per channel."""
    readers = [k for k, ins in enumerate(expr.instrs) if current in ins.args]
    if len(readers) != 1 or (expr.result == current):
        return None
    ins: Instr = expr.instrs[readers[0]]
    if ins.fn not in ("mul", "add", "sub", "div") or ins.args.count(current) != 1:
        return None
    swapped = ins.args[1] == current
    if swapped and ins.fn == "div":
        return None
    constant = _per_channel(ins.args[0 if swapped else 1], node, channels)
    return None if constant is None else (readers[0], ins.fn, constant, swapped)


def _per_channel(ref: Ref, node: Node, channels: int) -> Array | None:
    if isinstance(ref, Lit):
        return np.full(channels, float(ref.value))
    if not isinstance(ref, In):
        return None
    v = node.input(ref.i)
    if not v.is_const:
        return None
    rank = len(node.y.shape)
    shape = (1,) * (rank - len(v.shape)) + v.shape
    if v.type.count == 1:
        return np.full(channels, float(v.array.reshape(())))
    if shape[1] != channels or math.prod(shape) != channels:
        return None
    return v.array.astype(np.float64).reshape(channels)


def _scaled_conv(conv: Node, scale: Array, shift: Array, origin: tuple[Origin, ...]) -> Node:
    w, b = conv.input(1), conv.get(2)
    data = w.array
    dims = [1] * len(w.shape)
    if isinstance(conv.op, Conv):
        dims[0] = -1
        weights = data * scale.reshape(dims)
    else:  # ConvTranspose: w[C, M/g, ...], group-major output channels
        groups = conv.as_(ConvTranspose).group
        view = data.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        by_group = scale.reshape(groups, 1, w.shape[1], *[1] * (len(w.shape) - 2))
        weights = (view * by_group).reshape(w.shape)
    bias = shift if b is None or b.data is None else b.data * scale + shift
    new_w = constant_like(w, weights)
    new_b = new_value(f"{w.name}.bias", TensorType(w.dtype, (len(scale),)))
    new_b.data = bias.astype(w.dtype.np)
    return conv.with_(inputs=[conv.x, new_w, new_b], origin=origin)


def _scaled_norm(norm: Node, scale: Array, shift: Array, origin: tuple[Origin, ...]) -> Node:
    old, bias = norm.get(1), norm.get(2)
    shift = shift if bias is None else bias.array * scale + shift
    scale = scale if old is None else old.array * scale
    parameters = [constant_like(old or norm.x, scale), constant_like(bias or norm.x, shift)]
    return norm.with_(inputs=[norm.x, *parameters], origin=origin)


def constant_like(value: Value, data: Array) -> Value:
    """A new constant of the dtype of `value`."""
    made = new_value(value.name, TensorType(value.dtype, data.shape))
    made.data = np.ascontiguousarray(data, value.dtype.np)
    return made


def _rewritten(expr: Expr, dtypes: Sequence[DType], given: Mapping[Ref, Ref]) -> Expr:
    """`expr` of operands of `dtypes`, with the operands and results of instructions in `given` replaced."""
    b = Builder(dtypes)
    done = dict(given)
    for k, ins in enumerate(expr.instrs):
        if Tmp(k) not in given:
            done[Tmp(k)] = b.emit(ins.fn, [done.get(a, a) for a in ins.args], ins.dtype)
    return b.finish(done.get(expr.result, expr.result))


def with_expression(node: Node, op: Elementwise, inputs: Sequence[Value | None], before: Node | None = None) -> Node:
    """`node` with `op`, keeping only the `inputs` that its expression reads; `shape` keeps the output's shape.

    before: a node whose expression is merged in, for the origin.
    """
    expr = op.expr
    origin = node.origin if before is None else joined_origin(before, node)
    name = node.name or ("" if before is None else before.name)
    used = {a.i for ins in expr.instrs for a in ins.args if isinstance(a, In)} | ({0} if not expr.instrs else set())
    if len(used) == len(inputs):
        return node.with_(op=op, inputs=inputs, name=name, origin=origin)
    order = sorted(used)
    kept = _rewritten(expr, [expr.dtypes[i] for i in order], {In(old): In(new) for new, old in enumerate(order)})
    op = Elementwise(kept, node.y.shape)
    return node.with_(op=op, inputs=[inputs[i] for i in order], name=name, origin=origin)


def fold_pad(node: Node, sweep: Sweep) -> Patch | str | None:
    """Spatial zero padding becomes part of the reader's own padding."""
    op = node.op
    if not isinstance(op, Conv | Pool):
        return None
    pad = node.x.producer
    if pad is None or not isinstance(pad.op, Pad):
        return None
    if sweep.only_use(node.x) is not node:
        return "the padded tensor has other readers"
    if pad.op.mode != "constant" or pad.op.value != 0:
        return "padding is not zeros"
    rank = len(node.x.shape)
    pads = pad.op.pads
    if any(pads[:2]) or any(pads[rank : rank + 2]):
        return "padding touches batch or channels"
    if isinstance(op, Conv) and (w := node.inputs[1]) is not None and not neutral_zeros(w):
        return "zeros are not neutral for weights that may be infinite"
    if isinstance(op, Pool) and not (op.kind == "average" and (op.count_include_pad or not any(op.pads))):
        return "zeros are not neutral for this pooling"
    if isinstance(op, Pool) and op.ceil_mode:
        return "ceil_mode depends on where padding ends"
    joined = tuple(o + p for o, p in zip(op.pads, (*pads[2:rank], *pads[rank + 2 :]), strict=True))
    wide = replace(op, pads=joined, count_include_pad=True) if isinstance(op, Pool) else replace(op, pads=joined)
    made = node.with_(op=wide, inputs=[pad.x, *node.inputs[1:]], origin=joined_origin(pad, node))
    return Patch.replacing(node, made, also=[pad])
