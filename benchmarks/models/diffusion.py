"""The first block of Stable Diffusion's U-Net (Rombach et al., 2022) with attention to a text."""

from __future__ import annotations

import numpy as np

import onnx

from .net import LINEAR_GAIN, Batch, Net
from .transformer import RESIDUAL

GROUPS = 32


def cross_attention_block(
    batch: Batch, size: int = 64, width: int = 320, heads: int = 8, words: int = 77, text: int = 768
) -> onnx.ModelProto:
    """Two pairs of a residual block (with time) and a transformer (with text), then downsampling by 2.

    Inputs: an image [N,width,size,size], an embedded time [N,4 * width], an embedded text [N,words,text].
    """
    net = Net("sd_block", opset=17)
    x = net.input("sample", (batch, width, size, size))
    time = net.silu(net.input("time", (batch, 4 * width)))
    context = net.input("context", (batch, words, text))
    for _ in range(2):
        x = residual(net, x, time, 4 * width)
        x = transformer(net, x, context, heads, text)
    return net.model(net.conv(x, width, 3, stride=2, gain=LINEAR_GAIN))


def residual(net: Net, x: str, time: str, features: int) -> str:
    """Two 3x3 convolutions after group normalisations, with the time added in between."""
    width = net.channels(x)
    y = net.conv(net.silu(group_norm(net, x)), width, 3, gain=LINEAR_GAIN)
    shift = net.reshape(net.gemm(time, features, width), 0, width, 1, 1)
    y = net.conv(net.silu(group_norm(net, net.add(y, shift))), width, 3, gain=RESIDUAL)
    return net.add(x, y)


def transformer(net: Net, x: str, context: str, heads: int, text: int) -> str:
    """x, and attention of its pixels to each other and to the text, and a gated feed-forward layer."""
    width = net.channels(x)
    shape = net.op("Shape", x)
    y = net.conv(group_norm(net, x, 1e-6), width, gain=LINEAR_GAIN)
    y = net.transpose(net.reshape(y, 0, width, -1), 0, 2, 1)
    z = net.layer_norm(y, width, 1e-5)
    y = net.add(attend(net, z, z, width, width, heads), y)
    y = net.add(attend(net, net.layer_norm(y, width, 1e-5), context, width, text, heads), y)
    both = net.linear(net.layer_norm(y, width, 1e-5), width, 8 * width)
    value, gate = net.ops("Split", 2, both, net.integers(4 * width, 4 * width), axis=-1)
    y = net.add(net.linear(net.op("Mul", value, net.gelu(gate)), 4 * width, width, gain=RESIDUAL), y)
    y = net.of_channels(net.op("Reshape", net.transpose(y, 0, 2, 1), shape), width)
    return net.add(net.conv(y, width, gain=RESIDUAL), x)


def attend(net: Net, x: str, context: str, width: int, features: int, heads: int) -> str:
    """Attention of rows x to rows of `features` numbers; only the last product has a bias."""
    size = width // heads

    def split(rows: str, count: int, *axes: int) -> str:
        weights = net.random((count, width), LINEAR_GAIN / count)
        return net.transpose(net.reshape(net.op("MatMul", rows, weights), 0, -1, heads, size), *axes)

    q, k, v = split(x, width, 0, 2, 1, 3), split(context, features, 0, 2, 3, 1), split(context, features, 0, 2, 1, 3)
    scores = net.op("Mul", net.op("MatMul", q, k), net.constant(size**-0.5))
    y = net.transpose(net.op("MatMul", net.op("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
    return net.linear(net.reshape(y, 0, -1, width), width, width, gain=RESIDUAL)


def group_norm(net: Net, x: str, epsilon: float = 1e-5) -> str:
    """Normalisation of groups of channels, as exporters write it: an InstanceNormalization between two Reshapes."""
    width, shape = net.channels(x), net.op("Shape", x)
    ones, zeros = net.constant(np.ones(GROUPS), "ones"), net.constant(np.zeros(GROUPS), "zeros")
    y = net.op("InstanceNormalization", net.reshape(x, 0, GROUPS, -1), ones, zeros, epsilon=epsilon)
    scale = net.constant(net.rng.uniform(0.9, 1.1, (width, 1, 1)), "scale")
    y = net.op("Mul", net.op("Reshape", y, shape), scale)
    return net.add(y, net.random((width, 1, 1), 0.01, "bias"))
