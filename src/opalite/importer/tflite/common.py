"""Shared by the importer functions: registration, declared tensors, fused activations, padding of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym
from ...ir import DType, Value
from ...ir.symbols import fixed
from ..proto.op_schemas import TFLITE
from ..walk.node_context import Handler, NodeContext, Trimmed, find_handler, onnx_op
from .read.bodies import NodeTensors
from .read.tensors import TensorInfo

_H = TypeVar("_H", bound=Handler)

COMPLEX = (DType.COMPLEX64, DType.COMPLEX128)

QUANTIZED = "tflite.quantized"
"""Domain of the importer functions for quantised tensors."""

SAME, VALID = 0, 1
"""Values of an operator's padding."""

CLAMPS: dict[int, tuple[float | None, float | None]] = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}
"""Bounds of the fused activations that clamp, by their numbers in the schema."""


def tflite_op(*names: str, moves: bool = False, pairs: bool = False) -> Callable[[_H], _H]:
    """Decorate the function that imports operators of TensorFlow Lite.

    Nodes on quantised tensors go to the `quantized_op` of that name. moves: the operator only moves elements, so that
    its function serves these too where there is none. pairs: the function knows complex numbers, which are pairs on a
    last axis that the file does not count; others refuse them.
    """

    def register(handler: _H) -> _H:
        @wraps(handler)
        def dispatch(ctx: NodeContext) -> Any:
            if not pairs and is_complex(ctx):
                raise unsupported(ctx, "has complex numbers")
            if not is_quantized(ctx):
                return handler(ctx)
            other = find_handler(ctx.op_type, QUANTIZED, ctx.version)
            if other is None and not moves:
                raise UnsupportedOpError(f"{ctx.label} (version {ctx.version}) has quantised tensors, of {_types(ctx)}")
            return (other or handler)(ctx)

        onnx_op(*names, domain=TFLITE)(dispatch)
        return handler

    return register


def quantized_op(*names: str) -> Callable[[_H], _H]:
    """Decorate the function that imports operators of TensorFlow Lite on quantised tensors."""
    return onnx_op(*names, domain=QUANTIZED)


def is_quantized(ctx: NodeContext) -> bool:
    """Whether an input or output of the node holds quantised numbers."""
    tensors = tensors_of(ctx)
    return any(t is not None and t.holds_quantized for t in (*tensors.inputs, *tensors.outputs))


def is_complex(ctx: NodeContext) -> bool:
    """Whether an input or output of the node holds complex numbers."""
    tensors = tensors_of(ctx)
    return any(t is not None and t.dtype in COMPLEX for t in (*tensors.inputs, *tensors.outputs))


def rank_of(ctx: NodeContext, x: Value) -> int:
    """Return how many axes the file counts."""
    return len(x.shape) - is_complex(ctx)


def _types(ctx: NodeContext) -> str:
    tensors = tensors_of(ctx)
    return ", ".join(str(t.dtype) for t in (*tensors.inputs, *tensors.outputs) if t is not None and t.holds_quantized)


def tensors_of(ctx: NodeContext) -> NodeTensors:
    """Return the node's tensors as the file declares them."""
    found: NodeTensors = ctx.attr("tensors")
    return found


def info_of(ctx: NodeContext, i: int) -> TensorInfo | None:
    """Return input `i` as the file declares it; None if it is absent."""
    inputs = tensors_of(ctx).inputs
    return inputs[i] if i < len(inputs) else None


def out_dtype(ctx: NodeContext, i: int = 0) -> DType:
    """Return the declared element type of output `i`."""
    dtype = tensors_of(ctx).outputs[i].dtype
    if dtype is None:
        raise UnsupportedOpError(f"{ctx.label} (version {ctx.version}) gives a handle where a tensor is expected")
    return dtype


def unsupported(ctx: NodeContext, what: str) -> UnsupportedOpError:
    """Return the error for a form of the operator that nothing here computes."""
    return UnsupportedOpError(f"{ctx.label} (version {ctx.version}) {what}")


def one(found: Sequence[Value | Trimmed | None]) -> Value:
    """Return the only output of a part."""
    value = found[0]
    assert isinstance(value, Value), "the operator gives a tensor of known shape"
    return value


def activated(ctx: NodeContext, v: Value) -> Value:
    """Apply the node's fused activation."""
    return activate(ctx, v, int(ctx.attr("fused_activation_function", 0)))


def activate(ctx: NodeContext, v: Value, number: int) -> Value:
    """Apply the activation of that number."""
    if number == 0:
        return v
    return ctx.elementwise(activation(ctx, number), v)


def activation(ctx: NodeContext, number: int) -> Callable[[Sym], Sym]:
    """Return the activation of that number as a function of an element."""
    if number in CLAMPS:
        low, high = CLAMPS[number]
        return lambda x: clamp(x, low, high)
    if number in (4, 5):
        return lambda x: x.call("tanh" if number == 4 else "sign")
    raise unsupported(ctx, f"has the activation number {number}; 0 to 5 are known")


def clamp(x: Sym, low: float | None, high: float | None) -> Sym:
    """Return min(max(x, low), high)."""
    x = x if low is None else x.call("max", low)
    return x if high is None else x.call("min", high)


def check_rank(ctx: NodeContext, rank: int, *values: Value) -> None:
    """Raise ShapeError unless all values have `rank` axes."""
    for v in values:
        if len(v.shape) != rank:
            raise ShapeError(f"{ctx.label} expects {rank} axes, got {v.type}")


def window_pads(
    ctx: NodeContext, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return begins, then ends, of the padding that the node's `padding` asks for."""
    return pads_for(int(ctx.attr("padding", SAME)), sizes, kernel, strides, dilations)


def pads_for(
    padding: int, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return begins, then ends, of SAME or VALID padding."""
    if padding == VALID:
        return (0,) * (2 * len(sizes))
    totals = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        rest = fixed(size % s) or s  # input elements in the last window; pads are plain numbers
        totals.append(max(0, (k - 1) * d + 1 - rest))
    begins = [t // 2 for t in totals]
    return (*begins, *(t - b for t, b in zip(totals, begins, strict=True)))


def numbers_of(ctx: NodeContext, names: Sequence[str]) -> tuple[int, ...]:
    """Return options that are positive numbers, such as strides; ShapeError for others."""
    found = tuple(int(ctx.attr(name, 1)) for name in names)
    if min(found) < 1:
        raise ShapeError(f"{ctx.label} has {', '.join(names)} of {found}; numbers from 1 on are expected")
    return found


def to_channels_first(ctx: NodeContext, v: Value) -> Value:
    """Move the last axis behind the first: NHWC to NCHW."""
    rank = len(v.shape)
    return ctx.transpose(v, (0, rank - 1, *range(1, rank - 1)))


def to_channels_last(ctx: NodeContext, v: Value) -> Value:
    """Move the second axis to the end: NCHW to NHWC."""
    rank = len(v.shape)
    return ctx.transpose(v, (0, *range(2, rank), 1))
