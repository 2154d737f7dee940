"""EfficientNet (Tan and Le, 2019)."""

from __future__ import annotations

import onnx

from .net import SILU_GAIN, Batch, Net

# Expansion, kernel, first stride, channels and repeats of each stage of B0.
B0 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def b0(batch: Batch) -> onnx.ModelProto:
    """EfficientNet-B0."""
    net = Net("efficientnet_b0")
    x = net.silu(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 32, 3, stride=2, gain=SILU_GAIN))
    for expansion, kernel, first, channels, repeats in B0:
        for i in range(repeats):
            stride = first if i == 0 else 1
            narrow = net.channels(x)
            y, wide = x, narrow * expansion
            if expansion != 1:
                y = net.silu(net.conv_bn(y, wide, gain=SILU_GAIN))
            y = net.silu(net.conv_bn(y, wide, kernel, stride=stride, groups=wide, gain=SILU_GAIN))
            y = net.squeeze_excite(y, max(1, narrow // 4), swish=True)
            y = net.conv_bn(y, channels, gain=SILU_GAIN)
            x = net.add(y, x) if stride == 1 and narrow == channels else y
    return net.model(net.classifier(net.silu(net.conv_bn(x, 1280, gain=SILU_GAIN))))
