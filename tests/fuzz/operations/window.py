"""Convolutions and pools of one to three axes."""

from __future__ import annotations

import math
from typing import Any

from ..builder import Builder, Rejected
from ..registry import operation

ACTIVATIONS = ("Relu", "Sigmoid", "LeakyRelu", "Tanh", "HardSigmoid", "Elu")


def image(b: Builder, most: int = 12_000) -> tuple[str, int]:
    """A tensor [N, C, axes...] and the number of axes."""
    axes = b.draw.pick([1, 2, 2, 2, 2, 2, 3])
    return b.calm(axes + 2, lambda a: a.size <= most), axes


def window(b: Builder, axes: int) -> tuple[list[int], list[int] | None, list[int] | None]:
    """(window, strides, dilations)."""
    d = b.draw
    sizes = (1, 1, 2, 3, 3, 3, 4, 5, 7) if axes < 3 else (1, 2, 3)
    kernel = [d.pick(sizes) for _ in range(axes)]
    if d.chance(0.4):
        kernel = [kernel[0]] * axes
    strides = [d.pick((1, 1, 2, 2, 3)) for _ in range(axes)] if d.chance(0.5) else None
    dilations = [d.pick((1, 1, 2, 3)) for _ in range(axes)] if d.chance(0.3) else None
    return kernel, strides, dilations


def padding(b: Builder, kernel: list[int]) -> dict[str, Any]:
    d = b.draw
    kind = d.between(0, 9)
    if kind < 3:
        return {}
    if kind < 5:
        return {"auto_pad": d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    if kind < 7:
        return {"pads": [k // 2 for k in kernel] * 2}
    return {"pads": [d.between(0, k - 1) for k in kernel * 2]}


@operation("window", 3)
def conv(b: Builder) -> None:
    d = b.draw
    x, axes = image(b)
    channels = b[x].shape[1]
    if not channels:
        raise Rejected("no channels")
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    group = d.weighted({1: 5, channels: 3, d.pick(divisors): 2})
    out = group * d.pick([1, 1, 2, 3]) if group > 1 else d.pick([1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 32, 40])
    kernel, strides, dilations = window(b, axes)
    pads = padding(b, kernel)
    if pads.get("auto_pad", "VALID") != "VALID":
        dilations = None
    w = b.weight([out, channels // group, *kernel], 1 / math.sqrt(channels // group * math.prod(kernel)))
    inputs = [x, w, b.weight([out])] if d.chance(0.6) else [x, w]
    given = kernel if d.chance(0.8) else None
    attrs: dict[str, Any] = {"group": group if group > 1 else None, "strides": strides, "dilations": dilations}
    follow(b, b.emit("Conv", inputs, kernel_shape=given, **attrs, **pads))


def follow(b: Builder, y: str) -> None:
    """What often comes after a layer, so that it is fused."""
    d, t = b.draw, b.dtype.type
    kind = d.between(0, 11)
    if kind == 0:
        b.emit(d.pick(ACTIVATIONS), [y])
    elif kind == 1:
        b.emit("Mul", [y, b.emit("Sigmoid", [y])])
    elif kind == 2:
        b.emit("Add", [y, b.partner(y)])
    elif kind == 3 and b.opset >= 11:
        b.emit("Clip", [y, b.const(t(0), 0.0), b.const(t(6), 0.0)])
    elif kind == 4 and b[y].ndim > 1:
        shape = [1, b[y].shape[1], *[1] * (b[y].ndim - 2)]
        b.emit("Add", [b.emit("Mul", [y, b.weight(shape)]), b.weight(shape)])


@operation("window", 1)
def conv_transpose(b: Builder) -> None:
    d = b.draw
    x, axes = image(b, most=4000)
    channels = b[x].shape[1]
    if not channels:
        raise Rejected("no channels")
    group = d.pick([1, 1, 1, channels, d.pick([g for g in range(1, channels + 1) if channels % g == 0])])
    out = d.pick([1, 2, 3, 5, 8, 16])
    kernel, strides, dilations = window(b, axes)
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, **padding(b, kernel)}
    if attrs.get("auto_pad", "VALID") != "VALID":
        attrs["dilations"] = None
        # Where strides are longer than windows, onnxruntime gives less than the input's size times the stride.
        attrs["strides"] = strides = [min(s, k) for s, k in zip(strides or [1] * axes, kernel, strict=True)]
    if strides and d.chance(0.3):
        attrs["output_padding"] = [d.between(0, s - 1) for s in strides]
    elif d.chance(0.2):
        steps, gaps = strides or [1] * axes, attrs["dilations"] or [1] * axes
        sizes = b[x].shape[2:]
        reach = [s * (n - 1) + (k - 1) * g + 1 for s, n, k, g in zip(steps, sizes, kernel, gaps, strict=True)]
        # What is asked for beyond the reach of the filters has to be less than a stride.
        attrs["output_shape"] = [max(1, r + d.between(-2, s - 1)) for r, s in zip(reach, steps, strict=True)]
        attrs.pop("pads", None)
    w = b.weight([channels, out, *kernel], 1 / math.sqrt(channels // group * math.prod(kernel)))
    inputs = [x, w, b.weight([out * group])] if d.chance(0.6) else [x, w]
    follow(b, b.emit("ConvTranspose", inputs, kernel_shape=kernel, group=group if group > 1 else None, **attrs))


def pooling_window(b: Builder, axes: int) -> tuple[list[int], list[int] | None, list[int] | None]:
    """As `window`, with strides that may leave out many elements: of a Conv's under auto_pad SAME_UPPER onnxruntime
    moves the windows then, by none or one element."""
    kernel, strides, dilations = window(b, axes)
    if strides and b.draw.chance(0.3):
        strides = [s + b.draw.between(0, 3) for s in strides]
    return kernel, strides, dilations


def ceil_mode(b: Builder) -> int | None:
    return b.draw.pick([None, None, 0, 1, 1]) if b.opset >= 10 else None


@operation("window", 1.4)
def max_pool(b: Builder) -> None:
    d = b.draw
    axes = d.pick([1, 2, 2, 2, 3])
    x = b.real(axes + 2, lambda a: a.size <= 12_000)
    kernel, strides, dilations = pooling_window(b, axes)
    pads = padding(b, kernel)
    if b.opset < 10 or pads.get("auto_pad", "VALID") != "VALID":
        dilations = None
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "ceil_mode": ceil_mode(b), **pads}
    outputs = 2 if b.opset >= 8 and d.chance(0.15) else 1
    order = d.pick([None, 0, 1]) if outputs == 2 else None
    b.emit_all("MaxPool", [x], outputs, storage_order=order, **attrs)


@operation("window", 1.4)
def average_pool(b: Builder) -> None:
    d = b.draw
    x, axes = image(b)
    kernel, strides, dilations = pooling_window(b, axes)
    pads = padding(b, kernel)
    if b.opset < 19 or pads.get("auto_pad", "VALID") != "VALID":
        dilations = None
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "ceil_mode": ceil_mode(b), **pads}
    b.emit("AveragePool", [x], count_include_pad=d.pick([None, 0, 1]), **attrs)


@operation("window", 0.3)
def lp_pool(b: Builder) -> None:
    d = b.draw
    x, axes = image(b)
    kernel, strides, _ = pooling_window(b, axes)
    attrs = {"strides": strides, "ceil_mode": ceil_mode(b) if b.opset >= 18 else None, **padding(b, kernel)}
    b.emit("LpPool", [x], kernel_shape=kernel, p=d.pick([None, 1, 2, 3]), **attrs)


@operation("window", 0.6)
def global_pool(b: Builder) -> None:
    d = b.draw
    op = d.pick(["GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
    axes = d.pick([1, 2, 2, 3])
    b.emit(op, [b.calm(axes + 2)])


@operation("window", 0.4)
def padded_conv(b: Builder) -> None:
    """Pad and the convolution or pool that takes it in."""
    d = b.draw
    x = b.calm(4, lambda a: a.size <= 6000 and a.shape[1] > 0)
    pads = [0, 0, d.between(0, 2), d.between(0, 2), 0, 0, d.between(0, 2), d.between(0, 2)]
    if b.opset < 11:
        y = b.emit("Pad", [x], pads=pads)
    else:
        y = b.emit("Pad", [x, b.ints(pads)])
    if d.chance(0.5):
        b.emit("Conv", [y, b.weight([d.pick([1, 4, 5, 16]), b[x].shape[1], 3, 3], 0.3)])
        return
    kernel, strides, _ = window(b, 2)
    attrs = {"kernel_shape": kernel, "strides": strides, "ceil_mode": ceil_mode(b), **padding(b, kernel)}
    if d.chance(0.7):
        b.emit("AveragePool", [y], count_include_pad=d.pick([None, 0, 1, 1]), **attrs)
    else:
        b.emit("MaxPool", [y], **attrs)
