"""Networks without shortcuts: AlexNet (Krizhevsky, 2014), VGG (Simonyan and Zisserman, 2014), SqueezeNet (2016)."""

from __future__ import annotations

import onnx

from .net import RELU_GAIN, Batch, Net

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels and convolutions of each stage
SQUEEZENET = ("pool", 16, 16, "pool", 32, 32, "pool", 48, 48, 64, 64)  # channels of each fire module's squeeze


def vgg16(batch: Batch) -> onnx.ModelProto:
    """VGG-16: 138 million weights, most of them in the first fully connected layer."""
    net = Net("vgg16")
    x = net.input("input", (batch, 3, 224, 224))
    for channels, repeats in VGG16:
        for _ in range(repeats):
            x = net.relu(net.conv(x, channels, 3))
        x = net.max_pool(x, 2, 2)
    x = net.op("Flatten", x, axis=1)
    x = net.relu(net.gemm(x, 512 * 7 * 7, 4096, gain=RELU_GAIN))
    x = net.relu(net.gemm(x, 4096, 4096, gain=RELU_GAIN))
    return net.model(net.gemm(x, 4096, 1000))


def alexnet(batch: Batch) -> onnx.ModelProto:
    """AlexNet in the form of "One weird trick": 61 million weights, nearly all in three fully connected layers."""
    net = Net("alexnet")
    x = net.relu(net.conv(net.input("input", (batch, 3, 224, 224)), 64, 11, stride=4, pad=2))
    x = net.relu(net.conv(net.max_pool(x, 3, 2), 192, 5))
    x = net.max_pool(x, 3, 2)
    for channels in (384, 256, 256):
        x = net.relu(net.conv(x, channels, 3))
    x = net.op("Flatten", net.max_pool(x, 3, 2), axis=1)
    x = net.relu(net.gemm(x, 256 * 6 * 6, 4096, gain=RELU_GAIN))
    x = net.relu(net.gemm(x, 4096, 4096, gain=RELU_GAIN))
    return net.model(net.gemm(x, 4096, 1000))


def squeezenet(batch: Batch) -> onnx.ModelProto:
    """SqueezeNet 1.1."""
    net = Net("squeezenet1_1")
    x = net.relu(net.conv(net.input("input", (batch, 3, 224, 224)), 64, 3, stride=2, pad=0))
    for squeeze in SQUEEZENET:
        if isinstance(squeeze, str):
            x = net.max_pool(x, 3, 2, ceil=True)
            continue
        s = net.relu(net.conv(x, squeeze))
        x = net.concat(net.relu(net.conv(s, 4 * squeeze)), net.relu(net.conv(s, 4 * squeeze, 3)))
    x = net.global_pool(net.relu(net.conv(x, 1000)))
    return net.model(net.op("Flatten", x, axis=1))
