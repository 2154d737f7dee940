"""A detector of YOLO11's nano structure (Jocher and Qiu, 2024), without non-maximum suppression."""

from __future__ import annotations

import onnx

from .net import LINEAR_GAIN, SILU_GAIN, Batch, Net
from .yolo import BINS, CLASSES, conv, decode, pyramid_pool

HEAD = 64  # channels of an attention head; queries and keys have half of them


def yolo11n(batch: Batch, size: int) -> onnx.ModelProto:
    """Boxes (centre, size in pixels) and class scores: [N, 4 + CLASSES, anchors] of a picture of `size` squared."""
    net = Net(f"yolo11n_{size}", opset=17)
    x = net.input("images", (batch, 3, size, size))
    x = stage(net, conv(net, conv(net, x, 16, 3, 2), 32, 3, 2), 64, 16)
    p3 = stage(net, conv(net, x, 64, 3, 2), 128, 32)
    p4 = stage(net, conv(net, p3, 128, 3, 2), 128, 64, deep=True)
    x = stage(net, conv(net, p4, 256, 3, 2), 256, 128, deep=True)
    p5 = attention_stage(net, pyramid_pool(net, x), size // 32)

    n4 = stage(net, net.concat(net.upsample(p5), p4), 128, 64)
    n3 = stage(net, net.concat(net.upsample(n4), p3), 64, 32)
    n4 = stage(net, net.concat(conv(net, n3, 64, 3, 2), n4), 128, 64)
    n5 = stage(net, net.concat(conv(net, n4, 128, 3, 2), p5), 256, 128, deep=True)
    return net.model(detect(net, (n3, n4, n5), size))


def stage(net: Net, x: str, out: int, width: int, *, deep: bool = False) -> str:
    """C3k2: half of the channels goes through one block, a bottleneck or, if `deep`, two within a C3."""
    left, right = net.halve(conv(net, x, 2 * width))
    y = inner_stage(net, right, width) if deep else bottleneck(net, right, width // 2)
    return conv(net, net.concat(left, right, y), out)


def inner_stage(net: Net, x: str, width: int) -> str:
    """C3k: two bottlenecks beside a 1x1 convolution."""
    y = conv(net, x, width // 2)
    for _ in range(2):
        y = bottleneck(net, y, width // 2)
    return conv(net, net.concat(y, conv(net, x, width // 2)), width)


def bottleneck(net: Net, x: str, width: int) -> str:
    """Two 3x3 convolutions and a shortcut."""
    return net.add(x, conv(net, conv(net, x, width, 3), net.channels(x), 3))


def attention_stage(net: Net, x: str, side: int) -> str:
    """C2PSA: half of the channels goes through attention over all positions and two 1x1 convolutions."""
    channels = net.channels(x)
    left, right = net.halve(conv(net, x, channels))
    y = net.add(right, attention(net, right, side))
    wide = net.conv_bn(conv(net, y, 2 * net.channels(y)), net.channels(y), gain=LINEAR_GAIN)
    return conv(net, net.concat(left, net.add(y, wide)), channels)


def attention(net: Net, x: str, side: int) -> str:
    """Self-attention; positions are told by a depthwise convolution of the values."""
    channels = net.channels(x)
    joined = net.conv_bn(x, 2 * channels, gain=LINEAR_GAIN)
    joined = net.reshape(joined, 0, channels // HEAD, 2 * HEAD, side * side)
    q, k, v = net.ops("Split", 3, joined, net.integers(HEAD // 2, HEAD // 2, HEAD), axis=2)
    scores = net.op("MatMul", net.transpose(q, 0, 1, 3, 2), k)
    shares = net.op("Softmax", net.op("Mul", scores, net.constant((HEAD // 2) ** -0.5)), axis=-1)
    mixed = net.op("MatMul", v, net.transpose(shares, 0, 1, 3, 2))
    mixed = net.of_channels(net.reshape(mixed, 0, channels, side, side), channels)
    values = net.of_channels(net.reshape(v, 0, channels, side, side), channels)
    places = net.conv_bn(values, channels, 3, groups=channels, gain=LINEAR_GAIN)
    return net.conv_bn(net.add(mixed, places), channels, gain=LINEAR_GAIN)


def detect(net: Net, levels: tuple[str, ...], size: int) -> str:
    """The head of each level, and its decoding to boxes and scores."""
    wide = 4 * BINS
    flat = []
    for x in levels:
        box = net.conv(conv(net, conv(net, x, wide, 3), wide, 3), wide, gain=LINEAR_GAIN)
        score = x
        for _ in range(2):
            depthwise = net.conv_bn(score, net.channels(score), 3, groups=net.channels(score), gain=SILU_GAIN)
            score = conv(net, net.silu(depthwise), CLASSES)
        score = net.conv(score, CLASSES, gain=LINEAR_GAIN)
        flat.append(net.reshape(net.concat(box, score), 0, wide + CLASSES, -1))
    return decode(net, net.concat(*flat, axis=2), size)
