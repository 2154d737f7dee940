"""A detector of YOLOv8's nano structure (Jocher et al., 2023), with its decoding, without non-maximum suppression."""

from __future__ import annotations

import numpy as np

import onnx

from .net import LINEAR_GAIN, SILU_GAIN, Batch, Net

CLASSES = 80
BINS = 16  # each side of a box is a distribution over this many distances


def yolov8n(batch: Batch, size: int) -> onnx.ModelProto:
    """Boxes (centre, size in pixels) and class scores: [N, 4 + CLASSES, anchors] of a picture of `size` squared."""
    net = Net(f"yolov8n_{size}", opset=17)
    x = net.input("images", (batch, 3, size, size))
    x = conv(net, conv(net, x, 16, 3, 2), 32, 3, 2)
    x = stage(net, x, 32, 1)
    p3 = stage(net, conv(net, x, 64, 3, 2), 64, 2)
    p4 = stage(net, conv(net, p3, 128, 3, 2), 128, 2)
    p5 = pyramid_pool(net, stage(net, conv(net, p4, 256, 3, 2), 256, 1))

    n4 = stage(net, net.concat(net.upsample(p5), p4), 128, 1, shortcut=False)
    n3 = stage(net, net.concat(net.upsample(n4), p3), 64, 1, shortcut=False)
    n4 = stage(net, net.concat(conv(net, n3, 64, 3, 2), n4), 128, 1, shortcut=False)
    n5 = stage(net, net.concat(conv(net, n4, 128, 3, 2), p5), 256, 1, shortcut=False)
    return net.model(detect(net, (n3, n4, n5), size))


def conv(net: Net, x: str, out: int, kernel: int = 1, stride: int = 1) -> str:
    """Convolution and SiLU."""
    return net.silu(net.conv_bn(x, out, kernel, stride=stride, gain=SILU_GAIN))


def stage(net: Net, x: str, out: int, repeats: int, *, shortcut: bool = True) -> str:
    """C2f: half of the channels goes through `repeats` pairs of convolutions, and every step is kept."""
    parts = list(net.halve(conv(net, x, out)))
    for _ in range(repeats):
        y = conv(net, conv(net, parts[-1], out // 2, 3), out // 2, 3)
        parts.append(net.add(parts[-1], y) if shortcut else y)
    return conv(net, net.concat(*parts), out)


def pyramid_pool(net: Net, x: str) -> str:
    """SPPF: three 5x5 maximum pools in a row, all kept."""
    channels = net.channels(x)
    parts = [conv(net, x, channels // 2)]
    for _ in range(3):
        parts.append(net.max_pool(parts[-1], 5, 1, 2))
    return conv(net, net.concat(*parts), channels)


def detect(net: Net, levels: tuple[str, ...], size: int) -> str:
    """The head of each level, and its decoding to boxes and scores."""
    wide = 4 * BINS
    flat = []
    for x in levels:
        box = net.conv(conv(net, conv(net, x, wide, 3), wide, 3), wide, gain=LINEAR_GAIN)
        score = net.conv(conv(net, conv(net, x, CLASSES, 3), CLASSES, 3), CLASSES, gain=LINEAR_GAIN)
        flat.append(net.reshape(net.concat(box, score), 0, wide + CLASSES, -1))
    return decode(net, net.concat(*flat, axis=2), size)


def decode(net: Net, joined: str, size: int) -> str:
    """Boxes and scores of all anchors, from the distributions of the boxes' sides and the classes' logits."""
    box, score = net.ops("Split", 2, joined, net.integers(4 * BINS, CLASSES), axis=1)

    # The expected distance over the bins, as a convolution with the weights 0, 1, ... BINS-1.
    bins = net.transpose(net.reshape(box, 0, 4, BINS, -1), 0, 2, 1, 3)
    bins = net.op("Softmax", bins, axis=1)
    index = net.constant(np.arange(BINS).reshape(1, BINS, 1, 1), "bins")
    distance = net.reshape(net.op("Conv", bins, index, kernel_shape=(1, 1)), 0, 4, -1)

    centres, scale = anchors(size, (8, 16, 32))
    near, far = net.ops("Split", 2, distance, net.integers(2, 2), axis=1)
    origin = net.constant(centres, "anchors")
    low, high = net.op("Sub", origin, near), net.op("Add", origin, far)
    centre = net.op("Div", net.op("Add", low, high), net.constant(2))
    boxes = net.op("Mul", net.concat(centre, net.op("Sub", high, low)), net.constant(scale, "strides"))
    return net.concat(boxes, net.op("Sigmoid", score))


def anchors(size: int, strides: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Centres [1,2,A] of all cells in units of their stride, and the strides [1,A]."""
    centres, scale = [], []
    for stride in strides:
        axis = np.arange(size // stride) + 0.5
        y, x = np.meshgrid(axis, axis, indexing="ij")
        centres.append(np.stack([x.ravel(), y.ravel()]))
        scale.append(np.full(axis.size**2, stride))
    return np.concatenate(centres, axis=1)[None], np.concatenate(scale)[None]
