"""Windows; convolutions: plain, transposed, deformable, causal and integer; Col2Im; pooling over windows and images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym, coord
from ...ir.graph import Value
from ...ir.symbols import fixed
from ...ops.conv import Conv, ConvTranspose, neutral_zeros
from ...ops.grid_sample import GridSample
from ...ops.integer_conv_matmul import BYTES, IntegerConv
from ...ops.pool import Pool
from ..walk.node_context import NodeContext, Result, onnx_op
from .activation import swish_of
from .affine_quantization import minus_zero_point, nonzero_zero_point


@dataclass(frozen=True)
class Window:
    """Window, one number per spatial axis; pads: all begins, then all ends. auto: auto_pad chose the pads."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto: bool = False

    def extent(self, i: int) -> int:
        """Return the number of elements that the window spans along axis `i`."""
        return (self.kernel[i] - 1) * self.dilations[i] + 1


def window_of(ctx: NodeContext, x: Value, kernel: Sequence[int], skips: bool = False) -> Window:
    """Return the window of a convolution or pooling node over x[N,C,D...]; one number per spatial axis.

    skips: auto_pad SAME centres windows smaller than the stride, so that elements at both ends are skipped. onnxruntime
    does so for pooling only.
    """
    sizes = x.shape[2:]
    window = plain_window(ctx, len(sizes), kernel)
    auto = ctx.attr("auto_pad", "NOTSET") or "NOTSET"
    if auto == "NOTSET":
        return window
    if auto == "VALID":
        pads = (0,) * (2 * len(sizes))
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for i, (size, stride) in enumerate(zip(sizes, window.strides, strict=True)):
            rest = fixed(size % stride) or stride  # input elements in the last window; pads are plain numbers
            totals.append(window.extent(i) - rest)
        if not skips:
            totals = [max(0, t) for t in totals]
        pads = split_pads(totals, more_at_end=auto == "SAME_UPPER", skips=skips)
    else:
        raise UnsupportedOpError(f"{ctx.label} has auto_pad '{auto}'; known are NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    return Window(window.kernel, window.strides, window.dilations, pads, auto=True)


def plain_window(ctx: NodeContext, rank: int, kernel: Sequence[int]) -> Window:
    """Return kernel, strides, dilations and explicit pads, with defaults."""
    given = ctx.attr("kernel_shape", None)
    if given is not None and tuple(given) != tuple(kernel):
        raise ShapeError(f"{ctx.label} has kernel_shape {tuple(given)}, but weights of window {tuple(kernel)}")
    fields = {
        "kernel_shape": tuple(int(k) for k in kernel),
        "strides": tuple(int(s) for s in ctx.attr("strides", (1,) * rank)),
        "dilations": tuple(int(d) for d in ctx.attr("dilations", (1,) * rank)),
        "pads": ctx.ints("pads", (0,) * (2 * rank)),
    }
    for name, value in fields.items():
        expected = 2 * rank if name == "pads" else rank
        if len(value) != expected:
            raise ShapeError(f"{ctx.label} has {name} {value}, expected {expected} numbers for {rank} spatial axes")
    return Window(fields["kernel_shape"], fields["strides"], fields["dilations"], fields["pads"])


def split_pads(totals: Sequence[int], more_at_end: bool, skips: bool = False) -> tuple[int, ...]:
    """Split padding totals into begins, then ends; `more_at_end` places the extra element of an odd total.

    skips: halves of negative totals are rounded toward zero, as in onnxruntime's pooling, instead of down.
    """
    half = (lambda t: int(t / 2)) if skips else (lambda t: t // 2)
    begins = [half(t if more_at_end else t + 1) for t in totals]
    return (*begins, *(t - b for t, b in zip(totals, begins, strict=True)))


@onnx_op("Conv", since=1)
def conv(ctx: NodeContext) -> Value:
    """Import Conv: convolution of any spatial rank."""
    return convolve(ctx, ctx.input(0), ctx.input(1), ctx.get(2))


def convolve(ctx: NodeContext, x: Value, w: Value, bias: Value | None) -> Value:
    """Emit Conv of x[N,C,D...] with w[M,C/group,K...] by the node's attributes."""
    if len(w.shape) != len(x.shape):
        raise ShapeError(f"{ctx.label} has weights {w.type} for {x.type}: the ranks must be equal")
    window = window_of(ctx, x, w.shape[2:])
    pads = window.pads
    if any(window.pads) and not neutral_zeros(w):
        rank = len(x.shape) - 2
        zeros = [max(0, p) for p in window.pads]
        x = ctx.pad_zeros(x, (0, 0, *zeros[:rank], 0, 0, *zeros[rank:]))
        pads = tuple(min(0, p) for p in window.pads)
    group = ctx.attr("group", 1)
    return ctx.add(Conv(window.strides, pads, window.dilations, group), [x, w, bias])


@onnx_op("ConvTranspose", since=1)
def conv_transpose(ctx: NodeContext) -> Value:
    """Import ConvTranspose: transposed convolution; output_shape and auto_pad are converted to pads."""
    x, w = ctx.input(0), ctx.input(1)
    rank = len(x.shape) - 2
    if len(w.shape) != len(x.shape):
        raise ShapeError(f"{ctx.label} has weights {w.type} for {x.type}: the ranks must be equal")
    window = plain_window(ctx, rank, w.shape[2:])
    # Exporters write one number per axis, or two as opset 1 allowed; the further ones are zeros.
    extra = ctx.ints("output_padding", (0,) * rank)[:rank]
    auto = ctx.attr("auto_pad", "NOTSET")
    pads = (0,) * (2 * rank) if auto == "VALID" else window.pads
    target = ctx.attr("output_shape", None)
    if target is not None:
        wanted = [int(d) for d in target][-rank:]
    elif auto.startswith("SAME"):
        wanted = [d * s for d, s in zip(x.shape[2:], window.strides, strict=True)]
    else:
        wanted = []
    if wanted:
        totals = [
            window.strides[i] * (x.shape[2 + i] - 1) + extra[i] + window.extent(i) - wanted[i] for i in range(rank)
        ]
        pads = split_pads(totals, more_at_end=auto == "SAME_UPPER")
    if target is not None:  # an output beyond the reach of the filters is padded at the end
        begins, ends = pads[:rank], pads[rank:]
        pads = (*(max(0, b) for b in begins), *(e + min(0, b) for b, e in zip(begins, ends, strict=True)))
    return ctx.add(
        ConvTranspose(
            strides=window.strides,
            pads=pads,
            dilations=window.dilations,
            group=ctx.attr("group", 1),
            output_padding=extra,
        ),
        [x, w, ctx.get(2)],
    )


@onnx_op("Col2Im", since=18)
def col2im(ctx: NodeContext) -> Value:
    """Import Col2Im: sum of overlapping blocks: a transposed convolution whose filter k places column row k."""
    x, image, block = ctx.input(0), ctx.const_ints(1), ctx.const_ints(2)
    rank, taps = len(block), math.prod(block)
    strides = ctx.ints("strides", (1,) * rank)
    dilations = ctx.ints("dilations", (1,) * rank)
    pads = ctx.ints("pads", (0,) * (2 * rank))
    if x.shape[1] % taps:
        raise ShapeError(f"{ctx.label} needs channels in blocks of {taps}, got {x.type}")
    channels = x.shape[1] // taps
    reach = [(block[i] - 1) * dilations[i] + 1 for i in range(rank)]
    grid = [(image[i] + pads[i] + pads[rank + i] - reach[i]) // strides[i] + 1 for i in range(rank)]
    # The blocks may end before the image does; the rest is zero.
    left = [image[i] + pads[i] + pads[rank + i] - (grid[i] - 1) * strides[i] - reach[i] for i in range(rank)]
    one_tap = np.tile(np.eye(taps, dtype=x.dtype.np).reshape(taps, 1, *block), (channels, *(1,) * (rank + 1)))
    return ctx.add(
        ConvTranspose(strides=strides, pads=pads, dilations=dilations, group=channels, output_padding=tuple(left)),
        [ctx.reshape(x, (x.shape[0], x.shape[1], *grid)), ctx.constant(one_tap), None],
    )


@onnx_op("CausalConvWithState", since=27)
def causal_conv_with_state(ctx: NodeContext) -> Sequence[Value | None]:
    """Import CausalConvWithState: depthwise convolution over past_state and x; returns the last k - 1 positions too."""
    return convolve_causally(ctx, ctx.input(0), ctx.get(3), 1)


def convolve_causally(ctx: NodeContext, x: Value, past: Value | None, dilation: int) -> list[Value]:
    """Emit causal depthwise convolution of x[B,C,L] after its past, with bias and activation; return y and next state.

    The next state is [B,C,(k - 1) * dilation]; the taps are input 1.
    """
    w, kind = ctx.input(1), ctx.choice("activation", "none", ("none", "", "silu", "swish"))
    if len(x.shape) != 3 or len(w.shape) != 3:
        raise ShapeError(f"{ctx.label} needs [batch, channels, length] and [channels, 1, k], got {x.type} and {w.type}")
    keep = (w.shape[2] - 1) * dilation
    if past is None:
        past = ctx.full(0, x.dtype, (*x.shape[:2], keep))
    padded = ctx.concat([past, x], 2)
    out = ctx.add(Conv(strides=(1,), pads=(0, 0), dilations=(dilation,), group=x.shape[1]), [padded, w, ctx.get(2)])
    if kind in ("silu", "swish"):
        out = ctx.elementwise(lambda v: swish_of(v, 1.0), out)
    return [out, ctx.slice_axis(padded, 2, padded.shape[2] - keep, padded.shape[2])]


@onnx_op("DeformConv", since=19)
def deform_conv(ctx: NodeContext) -> Result:
    """Import DeformConv (2-D): samples x at the shifted taps, then computes one product over channels and taps."""
    x, w, offset, bias, mask = ctx.input(0), ctx.input(1), ctx.input(2), ctx.get(3), ctx.get(4)
    if len(x.shape) != 4:
        return ctx.host()
    window = window_of(ctx, x, w.shape[2:])
    groups, moved = ctx.attr("group", 1), ctx.attr("offset_group", 1)
    (n, c, height, width), m = x.shape, w.shape[0]
    kh, kw = window.kernel
    oh, ow = offset.shape[2:]
    taps = kh * kw

    def place(size: int, axis: int) -> tuple[float, float]:
        """Return scale and shift from pixel positions to GridSample's [-1, 1] between the image's outer edges."""
        return 2 / size, (1 - 2 * window.pads[axis]) / size - 1

    def position(axis: int, size: int) -> Value:
        """Return coordinates [N*groups, taps, oh, ow] along one axis: output position plus tap plus offset."""
        part = ctx.reshape(offset, (n * moved, taps, 2, oh, ow))
        part = ctx.reshape(ctx.slice_axis(part, 2, axis, axis + 1), (n * moved, taps, oh, ow))
        scale, shift = place(size, axis)

        def locate(o: Sym) -> Sym:
            tap = coord(o.builder, 1)
            step = tap.call("mod", kw) if axis else tap.call("div", kw)
            start = coord(o.builder, 2 + axis) * window.strides[axis] + step * window.dilations[axis]
            return (start.cast(o.dtype) + o) * scale + shift

        return ctx.elementwise(locate, part)

    column, row = position(1, width), position(0, height)
    flat = (n * moved, taps * oh, ow, 1)
    grid = ctx.concat([ctx.reshape(column, flat), ctx.reshape(row, flat)], 3)
    image = ctx.reshape(x, (n * moved, c // moved, height, width))
    sampled = ctx.add(GridSample(mode="linear", padding="zeros", align_corners=False), [image, grid])
    if mask is not None:
        weights = ctx.reshape(mask, (n * moved, 1, taps * oh, ow))
        sampled = ctx.elementwise(lambda v, k: v * k, sampled, weights)
    columns = ctx.reshape(sampled, (n, groups, c // groups * taps, oh * ow))
    out = ctx.matmul(ctx.reshape(w, (groups, m // groups, c // groups * taps)), columns)
    out = ctx.reshape(out, (n, m, oh, ow))
    return ctx.plus(out, None if bias is None else ctx.reshape(bias, (m, 1, 1)))


@onnx_op("ConvInteger", since=10)
def conv_integer(ctx: NodeContext) -> Value:
    """Import ConvInteger: convolution of 8-bit integers minus their zero points, exact in int32."""
    return integer_convolution(ctx, ctx.input(0), ctx.input(1), None, ctx.get(2), ctx.get(3))


def integer_convolution(
    ctx: NodeContext, x: Value, w: Value, bias: Value | None, x_zero: Value | None, w_zero: Value | None
) -> Value:
    """Emit the convolution of x - x_zero with w - w_zero plus bias, in int32, by the node's attributes."""
    plain = (x_zero is None or x_zero.type.count == 1) and (w_zero is None or len(w_zero.shape) <= 1)
    if not plain or x.dtype not in BYTES or w.dtype not in BYTES:
        return convolve(ctx, subtract_zero_point(ctx, x, x_zero, 1), subtract_zero_point(ctx, w, w_zero, 0), bias)
    if len(w.shape) != len(x.shape):
        raise ShapeError(f"{ctx.label} has weights {w.type} for {x.type}: the ranks must be equal")
    window = window_of(ctx, x, w.shape[2:])
    inputs = [x, w, bias, nonzero_zero_point(x_zero), nonzero_zero_point(w_zero)]
    group = ctx.attr("group", 1)
    return ctx.add(IntegerConv(window.strides, window.pads, window.dilations, group), inputs)


def subtract_zero_point(ctx: NodeContext, v: Value, zero: Value | None, axis: int) -> Value:
    """Subtract the zero point from `v` in int32; a vector of zero points belongs to `axis`."""
    zero = nonzero_zero_point(zero)
    if zero is not None and zero.type.count == 1:
        zero = ctx.reshape(zero, ())
    elif zero is not None and len(zero.shape) == 1:
        zero = ctx.along_axis(zero, axis, len(v.shape))
    return minus_zero_point(ctx, v, zero)


# Pooling


def pool(ctx: NodeContext, x: Value, kind: str, with_indices: bool = False) -> Result:
    """Emit Pool of x[N,C,D...] by the node's attributes."""
    kernel = ctx.attr("kernel_shape", None)
    if kernel is None:
        raise ShapeError(f"{ctx.label} has no kernel_shape")
    p = ctx.attr("p", 2.0)
    if kind == "lp" and (p < 1 or p != int(p)):
        raise UnsupportedOpError(f"{ctx.label} has p={p}; integers from 1 on are supported")
    window = window_of(ctx, x, kernel, skips=True)
    pads, count_pads = window.pads, ctx.attr("count_include_pad", False)
    if count_pads and ctx.version < 19 and not ctx.flag("ceil_mode"):
        # These versions divide by the window size even if the window exceeds the padded input.
        rank = len(window.kernel)
        beyond = [max(0, window.extent(i) - x.shape[2 + i] - pads[i] - pads[rank + i]) for i in range(rank)]
        if all(b < s for b, s in zip(beyond, window.strides, strict=True)):
            pads = (*pads[:rank], *(p + b for p, b in zip(pads[rank:], beyond, strict=True)))
    op = Pool(
        kind=kind,
        kernel=window.kernel,
        ceil_mode=ctx.flag("ceil_mode"),
        count_include_pad=count_pads,
        p=int(p),
        with_indices=with_indices,
        storage_order=ctx.attr("storage_order", 0),
        strides=window.strides,
        pads=pads,
        dilations=window.dilations,
    )
    return ctx.add_many(op, [x], 2) if with_indices else ctx.add(op, [x])


@onnx_op("MaxPool", "AveragePool", "LpPool")
def pool_(ctx: NodeContext) -> Result:
    """Import a pooling: largest element, mean or p-norm of each window; MaxPool optionally gives flat positions too."""
    kind = ctx.op_type.removesuffix("Pool").lower()
    return pool(ctx, ctx.input(0), kind, with_indices=kind == "max" and ctx.uses_output(1))


@onnx_op("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(ctx: NodeContext) -> Value:
    """Import a global pooling: mean, maximum or p-norm over all spatial axes."""
    x = ctx.input(0)
    if len(x.shape) < 3:
        raise ShapeError(f"{ctx.label} expects [N,C,D1,...], got {x.type}")
    axes = range(2, len(x.shape))
    if ctx.op_type == "GlobalLpPool":
        return p_norm(ctx, x, ctx.attr("p", 2.0), axes)
    return ctx.reduce(x, "max" if ctx.op_type == "GlobalMaxPool" else "mean", axes)


def p_norm(ctx: NodeContext, x: Value, p: float, axes: Sequence[int]) -> Value:
    """Return (sum |x|^p)^(1/p) over `axes`, dimensions kept."""
    if p in (1, 2):
        return ctx.reduce(x, "l1" if p == 1 else "l2", axes)
    total = ctx.reduce(ctx.elementwise(lambda v: v.call("abs").call("pow", p), x), "sum", axes)
    return ctx.elementwise(lambda v: v.call("pow", 1 / p), total)
