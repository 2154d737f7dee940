"""ResNet (He et al., 2016)."""

from __future__ import annotations

import onnx

from .net import LINEAR_GAIN, Batch, Net

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def resnet(batch: Batch, depth: int) -> onnx.ModelProto:
    """ResNet-18 of basic blocks or ResNet-50 of bottlenecks, stride in the 3x3 convolution."""
    net = Net(f"resnet{depth}")
    x = net.relu(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 64, 7, stride=2))
    x = net.max_pool(x, 3, 2, 1)
    block = basic if depth < 50 else bottleneck
    for stage, repeats in enumerate(BLOCKS[depth]):
        for i in range(repeats):
            x = block(net, x, 64 << stage, 2 if stage > 0 and i == 0 else 1)
    return net.model(net.classifier(x))


def basic(net: Net, x: str, width: int, stride: int) -> str:
    """Two 3x3 convolutions and a shortcut."""
    y = net.relu(net.conv_bn(x, width, 3, stride=stride))
    return join(net, x, net.conv_bn(y, width, 3, gain=0.5), stride)


def bottleneck(net: Net, x: str, width: int, stride: int) -> str:
    """1x1, 3x3 and 1x1 convolutions and a shortcut, four times as wide outside as inside."""
    y = net.relu(net.conv_bn(x, width))
    y = net.relu(net.conv_bn(y, width, 3, stride=stride))
    return join(net, x, net.conv_bn(y, 4 * width, gain=0.5), stride)


def join(net: Net, x: str, y: str, stride: int) -> str:
    """relu(y + x), with x projected to y's shape by a 1x1 convolution if they differ."""
    if stride != 1 or net.channels(x) != net.channels(y):
        x = net.conv_bn(x, net.channels(y), stride=stride, gain=LINEAR_GAIN)
    return net.relu(net.add(y, x))


def resnet_cifar(batch: Batch) -> onnx.ModelProto:
    """A ResNet of four basic blocks for pictures of 32 x 32: a run of a tenth of a millisecond."""
    net = Net("resnet_cifar")
    x = net.relu(net.conv_bn(net.input("input", (batch, 3, 32, 32)), 16, 3))
    for width, stride in ((16, 1), (32, 2), (32, 1), (64, 2)):
        x = basic(net, x, width, stride)
    return net.model(net.classifier(x, classes=10))
