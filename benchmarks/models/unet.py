"""U-Net (Ronneberger et al., 2015)."""

from __future__ import annotations

import onnx

from .net import Batch, Net


def unet(batch: Batch, size: int = 256, width: int = 32, depth: int = 4) -> onnx.ModelProto:
    """U-Net with padded convolutions: `width` channels at full size, doubled at each of `depth` halvings."""
    net = Net(f"unet_{size}")
    x = net.input("input", (batch, 3, size, size))
    kept = []
    for level in range(depth):
        x = twice(net, x, width << level)
        kept.append(x)
        x = net.max_pool(x, 2, 2)
    x = twice(net, x, width << depth)
    for level in reversed(range(depth)):
        x = net.conv_transpose(x, width << level, 2, 2)
        x = twice(net, net.concat(x, kept[level]), width << level)
    return net.model(net.op("Sigmoid", net.conv(x, 1)))


def twice(net: Net, x: str, channels: int) -> str:
    """Two 3x3 convolutions, each with ReLU."""
    for _ in range(2):
        x = net.relu(net.conv_bn(x, channels, 3))
    return x
