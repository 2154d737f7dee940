"""MobileNet V1 (Howard et al., 2017), V2 (Sandler et al., 2018) and V3 (Howard et al., 2019)."""

from __future__ import annotations

import onnx

from .net import LINEAR_GAIN, SILU_GAIN, Batch, Net

# Channels and stride of each separable convolution.
V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))

# Expansion, channels, repeats and first stride of each stage.
V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

# Kernel, expanded channels, channels, squeeze-and-excitation, hard swish and stride of each block.
V3_LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
V3_SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


def v1(batch: Batch) -> onnx.ModelProto:
    """MobileNet V1 with its BatchNormalization nodes left in, as TensorFlow's and Caffe's converters write it."""
    net = Net("mobilenet_v1", fold=False)
    x = net.relu(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 32, 3, stride=2))
    for channels, stride in V1:
        x = net.relu(net.conv_bn(x, net.channels(x), 3, stride=stride, groups=net.channels(x)))
        x = net.relu(net.conv_bn(x, channels))
    return net.model(net.op("Softmax", net.classifier(x), axis=1))


def v2(batch: Batch) -> onnx.ModelProto:
    """MobileNet V2 1.0."""
    net = Net("mobilenet_v2")
    x = net.relu6(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 32, 3, stride=2))
    for expansion, channels, repeats, first in V2:
        for i in range(repeats):
            stride = first if i == 0 else 1
            y, wide = x, net.channels(x) * expansion
            if expansion != 1:
                y = net.relu6(net.conv_bn(y, wide))
            y = net.relu6(net.conv_bn(y, wide, 3, stride=stride, groups=wide))
            y = net.conv_bn(y, channels, gain=LINEAR_GAIN)
            x = net.add(x, y) if stride == 1 and net.channels(x) == channels else y
    return net.model(net.classifier(net.relu6(net.conv_bn(x, 1280))))


def v3(batch: Batch, size: str) -> onnx.ModelProto:
    """MobileNet V3 "large" or "small"."""
    blocks, last, hidden = (V3_LARGE, 960, 1280) if size == "large" else (V3_SMALL, 576, 1024)
    net = Net(f"mobilenet_v3_{size}")
    x = net.hard_swish(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 16, 3, stride=2, gain=SILU_GAIN))
    for kernel, wide, channels, gated, swish, stride in blocks:
        activate = net.hard_swish if swish else net.relu
        y = x
        if wide != net.channels(x):
            y = activate(net.conv_bn(y, wide, gain=SILU_GAIN))
        y = activate(net.conv_bn(y, wide, kernel, stride=stride, groups=wide, gain=SILU_GAIN))
        if gated:
            y = net.squeeze_excite(y, divisible(wide / 4), swish=False)
        y = net.conv_bn(y, channels, gain=SILU_GAIN)
        x = net.add(x, y) if stride == 1 and net.channels(x) == channels else y
    x = net.hard_swish(net.conv_bn(x, last, gain=SILU_GAIN))
    y = net.gemm(net.op("Flatten", net.global_pool(x), axis=1), last, hidden)
    return net.model(net.gemm(net.hard_swish(y), hidden, 1000))


def divisible(channels: float, divisor: int = 8) -> int:
    """The multiple of `divisor` nearest to `channels`, but at least nine tenths of it."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * channels else rounded + divisor
