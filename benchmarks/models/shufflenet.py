"""ShuffleNet V1 (Zhang et al., 2018) and V2 (Ma et al., 2018)."""

from __future__ import annotations

import onnx

from .net import LINEAR_GAIN, Batch, Net

STAGES = ((116, 4), (232, 8), (464, 4))  # channels and blocks


def shufflenet_v2(batch: Batch) -> onnx.ModelProto:
    """ShuffleNet V2 1.0."""
    net = Net("shufflenet_v2")
    x = net.relu(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 24, 3, stride=2))
    x = net.max_pool(x, 3, 2, 1)
    for channels, blocks in STAGES:
        half = channels // 2
        side = 28 * 116 // channels
        left = net.conv_bn(x, net.channels(x), 3, stride=2, groups=net.channels(x), gain=LINEAR_GAIN)
        left = net.relu(net.conv_bn(left, half))
        x = shuffle(net, net.concat(left, branch(net, x, half, 2)), side)
        for _ in range(blocks - 1):
            left, right = net.halve(x)
            x = shuffle(net, net.concat(left, branch(net, right, half, 1)), side)
    return net.model(net.classifier(net.relu(net.conv_bn(x, 1024))))


def branch(net: Net, x: str, out: int, stride: int) -> str:
    """1x1, depthwise 3x3 and 1x1 convolutions."""
    y = net.relu(net.conv_bn(x, out))
    y = net.conv_bn(y, out, 3, stride=stride, groups=out, gain=LINEAR_GAIN)
    return net.relu(net.conv_bn(y, out))


def shuffle(net: Net, x: str, side: int) -> str:
    """Interleaves the two halves of the channels: reshape, transpose, reshape."""
    c = net.channels(x)
    y = net.transpose(net.reshape(x, 0, 2, c // 2, side, side), 0, 2, 1, 3, 4)
    return net.reshape(y, 0, c, side, side)


def shufflenet_v1(batch: Batch) -> onnx.ModelProto:
    """ShuffleNet V1 1.0 with 3 groups."""
    net = Net("shufflenet_v1")
    x = net.relu(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 24, 3, stride=2))
    x = net.max_pool(x, 3, 2, 1)
    for channels, blocks in ((240, 4), (480, 8), (960, 4)):
        side = 28 * 240 // channels
        for i in range(blocks):
            x = grouped_unit(net, x, channels, side, first=i == 0)
    return net.model(net.classifier(x))


def grouped_unit(net: Net, x: str, channels: int, side: int, *, first: bool) -> str:
    """Grouped 1x1, shuffle, depthwise 3x3 and grouped 1x1 convolutions; the first of a stage halves the size."""
    groups, width = 3, channels // 4
    y = net.relu(net.conv_bn(x, width, groups=1 if net.channels(x) == 24 else groups))
    high = side * (2 if first else 1)
    y = net.transpose(net.reshape(y, 0, groups, width // groups, high, high), 0, 2, 1, 3, 4)
    y = net.of_channels(net.reshape(y, 0, width, high, high), width)
    y = net.conv_bn(y, width, 3, stride=2 if first else 1, groups=width, gain=LINEAR_GAIN)
    if not first:
        return net.relu(net.add(x, net.conv_bn(y, channels, groups=groups, gain=0.5)))
    y = net.conv_bn(y, channels - net.channels(x), groups=groups, gain=0.5)
    return net.relu(net.concat(net.average_pool(x, 3, 2, 1), y))
