"""Shared by the importer functions: registration, declared tensors, fused activations, padding of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import UnsupportedOpError
from ...ir import DType, Value
from ...ir.symbols import fixed
from ..proto.op_schemas import TFLITE
from ..walk.node_context import Handler, NodeContext, onnx_op
from .read.bodies import NodeTensors

_H = TypeVar("_H", bound=Handler)

SAME, VALID = 0, 1
"""Values of an operator's padding."""

_ACTIVATIONS: dict[int, Callable[[NodeContext, Value], Value]] = {
    0: lambda ctx, v: v,
    1: lambda ctx, v: ctx.elementwise(lambda x: x.call("max", 0), v),
    2: lambda ctx, v: ctx.elementwise(lambda x: x.call("max", -1).call("min", 1), v),
    3: lambda ctx, v: ctx.elementwise(lambda x: x.call("max", 0).call("min", 6), v),
    4: lambda ctx, v: ctx.unary("tanh", v),
    5: lambda ctx, v: ctx.elementwise(lambda x: x.call("sign"), v),
}
"""Fused activations by their numbers in the schema."""


def tflite_op(*names: str) -> Callable[[_H], _H]:
    """Decorate the function that imports operators of TensorFlow Lite."""
    return onnx_op(*names, domain=TFLITE)


def tensors_of(ctx: NodeContext) -> NodeTensors:
    """Return the node's tensors as the file declares them."""
    found: NodeTensors = ctx.attr("tensors")
    return found


def out_dtype(ctx: NodeContext, i: int = 0) -> DType:
    """Return the declared element type of output `i`."""
    dtype = tensors_of(ctx).outputs[i].dtype
    if dtype is None:
        raise UnsupportedOpError(f"{ctx.label} (version {ctx.version}) gives a handle where a tensor is expected")
    return dtype


def activated(ctx: NodeContext, v: Value) -> Value:
    """Apply the node's fused activation."""
    return activate(ctx, v, int(ctx.attr("fused_activation_function", 0)))


def activate(ctx: NodeContext, v: Value, number: int) -> Value:
    """Apply the activation of that number."""
    if number not in _ACTIVATIONS:
        raise UnsupportedOpError(f"{ctx.label} (version {ctx.version}) has the activation number {number}; 0 to 5 are")
    return _ACTIVATIONS[number](ctx, v)


def window_pads(
    ctx: NodeContext, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return begins, then ends, of the padding that the node's `padding` asks for."""
    if ctx.attr("padding", SAME) == VALID:
        return (0,) * (2 * len(sizes))
    totals = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        rest = fixed(size % s) or s  # input elements in the last window; pads are plain numbers
        totals.append(max(0, (k - 1) * d + 1 - rest))
    begins = [t // 2 for t in totals]
    return (*begins, *(t - b for t, b in zip(totals, begins, strict=True)))


def to_channels_first(ctx: NodeContext, v: Value) -> Value:
    """Move the last axis behind the first: NHWC to NCHW."""
    rank = len(v.shape)
    return ctx.transpose(v, (0, rank - 1, *range(1, rank - 1)))


def to_channels_last(ctx: NodeContext, v: Value) -> Value:
    """Move the second axis to the end: NCHW to NHWC."""
    rank = len(v.shape)
    return ctx.transpose(v, (0, *range(2, rank), 1))
