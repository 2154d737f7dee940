"""Encoders of speech: a Conformer (Gulati et al., 2020) and Whisper's (Radford et al., 2022)."""

from __future__ import annotations

import numpy as np

import onnx

from .net import LINEAR_GAIN, Batch, Net
from .transformer import RESIDUAL


def whisper(
    batch: Batch, width: int = 768, heads: int = 12, layers: int = 12, bands: int = 80, frames: int = 3000
) -> onnx.ModelProto:
    """Whisper's encoder, by default of size small: [N,bands,frames] to [N,frames / 2,width]."""
    net = Net("whisper_small", opset=17)
    x = net.input("input_features", (batch, bands, frames))
    x = net.gelu(along(net, x, bands, width, 3))
    x = net.gelu(along(net, x, width, width, 3, stride=2))
    x = net.add(net.transpose(x, 0, 2, 1), net.random((frames // 2, width), 0.1, "positions"))
    for _ in range(layers):
        x = net.add(x, self_attention(net, net.layer_norm(x, width, 1e-5), width, heads))
        y = net.gelu(net.linear(net.layer_norm(x, width, 1e-5), width, 4 * width))
        x = net.add(x, net.linear(y, 4 * width, width, gain=RESIDUAL))
    return net.model(net.layer_norm(x, width, 1e-5))


def self_attention(net: Net, x: str, width: int, heads: int) -> str:
    """Attention whose keys have no bias and whose queries are scaled before the product."""

    def split(rows: str, *axes: int) -> str:
        return net.transpose(net.reshape(rows, 0, -1, heads, width // heads), *axes)

    q = split(net.op("Mul", net.linear(x, width, width), net.constant((width / heads) ** -0.5)), 0, 2, 1, 3)
    k = split(net.op("MatMul", x, net.random((width, width), LINEAR_GAIN / width)), 0, 2, 3, 1)
    v = split(net.linear(x, width, width), 0, 2, 1, 3)
    y = net.transpose(net.op("MatMul", net.op("Softmax", net.op("MatMul", q, k), axis=-1), v), 0, 2, 1, 3)
    return net.linear(net.reshape(y, 0, -1, width), width, width, gain=RESIDUAL)


def along(net: Net, x: str, features: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    """Convolution along time of [N,features,T], which a stride of 1 keeps as long."""
    w = net.random((out, features // groups, kernel), LINEAR_GAIN * groups / (features * kernel))
    bias, pad = net.random((out,), 0.01, "bias"), kernel // 2
    return net.op(
        "Conv", x, w, bias, kernel_shape=(kernel,), strides=(stride,), pads=(pad, pad), dilations=(1,), group=groups
    )


def conformer(
    batch: Batch, width: int = 144, heads: int = 4, layers: int = 16, bands: int = 80, frames: int = 400
) -> onnx.ModelProto:
    """The encoder of Conformer (S) for a fixed number of frames: [N,1,frames,bands] to [N,frames / 4,width]."""
    net = Net("conformer_s", opset=17)
    x = net.input("features", (batch, 1, frames, bands))
    for _ in range(2):
        x = net.relu(net.conv(x, width, 3, stride=2))
    steps, wide = frames // 4, width * (bands // 4)
    x = net.linear(net.reshape(net.transpose(x, 0, 2, 1, 3), 0, steps, wide), wide, width)
    places = net.constant(relative_places(steps, width), "places")
    for _ in range(layers):
        x = half_step(net, x, width)
        x = net.add(x, relative_attention(net, net.layer_norm(x, width, 1e-5), places, width, heads, steps))
        x = net.add(x, convolution(net, net.layer_norm(x, width, 1e-5), width))
        x = net.layer_norm(half_step(net, x, width), width, 1e-5)
    return net.model(x)


def relative_places(steps: int, width: int) -> np.ndarray:
    """Sines and cosines of the distances from steps - 1 to 1 - steps: [2 * steps - 1,width] (Vaswani et al., 2017)."""
    distance = np.arange(steps - 1, -steps, -1.0)[:, None]
    angles = distance / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(distance), width)


def half_step(net: Net, x: str, width: int) -> str:
    """x and half of a feed-forward layer with SiLU."""
    y = net.silu(net.linear(net.layer_norm(x, width, 1e-5), width, 4 * width))
    return net.add(x, net.op("Mul", net.linear(y, 4 * width, width), net.constant(0.5)))


def relative_attention(net: Net, x: str, places: str, width: int, heads: int, steps: int) -> str:
    """Attention by contents and by distance (Dai et al., 2019).

    The scores by distance, [N,heads,T,2T-1], are shifted so that each row begins at its own step.
    """
    size = width // heads
    q = net.reshape(net.linear(x, width, width), 0, steps, heads, size)
    k = net.transpose(net.reshape(net.linear(x, width, width), 0, steps, heads, size), 0, 2, 3, 1)
    v = net.transpose(net.reshape(net.linear(x, width, width), 0, steps, heads, size), 0, 2, 1, 3)
    p = net.op("MatMul", places, net.random((width, width), LINEAR_GAIN / width))
    p = net.transpose(net.reshape(p, 1, 2 * steps - 1, heads, size), 0, 2, 3, 1)
    by_contents, by_distance = (
        net.transpose(net.add(q, net.random((heads, size), 0.01, "bias")), 0, 2, 1, 3) for _ in range(2)
    )
    shifted = net.op("Pad", net.op("MatMul", by_distance, p), net.integers(0, 0, 0, 1, 0, 0, 0, 0))
    shifted = net.reshape(shifted, 0, heads, 2 * steps, steps)
    shifted = net.op("Slice", shifted, net.integers(1), net.integers(2 * steps), net.integers(2))
    shifted = net.reshape(shifted, 0, heads, steps, 2 * steps - 1)
    shifted = net.op("Slice", shifted, net.integers(0), net.integers(steps), net.integers(3))
    scores = net.op("Mul", net.add(net.op("MatMul", by_contents, k), shifted), net.constant(size**-0.5))
    y = net.transpose(net.op("MatMul", net.op("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
    return net.linear(net.reshape(y, 0, steps, width), width, width, gain=RESIDUAL)


def convolution(net: Net, x: str, width: int, kernel: int = 31) -> str:
    """A gated pointwise, a depthwise and a pointwise convolution along time, with batch normalisation and SiLU."""
    y = along(net, net.transpose(x, 0, 2, 1), width, 2 * width, 1)
    value, gate = net.ops("Split", 2, y, net.integers(width, width), axis=1)
    y = along(net, net.op("Mul", value, net.op("Sigmoid", gate)), width, width, kernel, groups=width)
    y = net.silu(net.batch_norm(net.of_channels(y, width)))
    return net.transpose(along(net, y, width, width, 1), 0, 2, 1)
