"""MobileNetV2 in int8 as a .tflite file, with seeded random weights by channel.

python -m benchmarks.models.tflite_int8 mobilenet_v2_int8.tflite
python -m benchmarks.compare mobilenet_v2_int8.tflite --engines litert,opalite --threads 2
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.tflite_writer import Quant, Subgraph, write_model

BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, blocks, stride of the first)."""
RELU6 = 3


class Net:
    """The network as it grows; `x` is the last tensor, of `shape` and `scale`."""

    def __init__(self, size: int) -> None:
        self.rng = np.random.default_rng(0)
        self.g = Subgraph()
        self.shape, self.scale = (1, size, size, 3), 1 / 128
        self.x = self.g.tensor("int8", self.shape, quant=Quant((self.scale,), (-1,)))
        self.g.inputs = [self.x]

    def out(self, shape: tuple[int, ...], scale: float, zero: int) -> int:
        """A tensor to write, which is the last from now on."""
        self.shape, self.scale = shape, scale
        self.x = self.g.tensor("int8", shape, quant=Quant((scale,), (zero,)))
        return self.x

    def conv(
        self, channels: int, kernel: int, stride: int = 1, activation: int = RELU6, depthwise: bool = False
    ) -> None:
        """A convolution with padding, bias and perhaps ReLU6; of each channel alone if depthwise."""
        n, h, w, c = self.shape
        many = c if depthwise else channels
        shape = (1, kernel, kernel, c) if depthwise else (many, kernel, kernel, c)
        scales = self.rng.uniform(0.5, 1.5, many) * 2 / np.sqrt(kernel * kernel * (1 if depthwise else c)) / 127
        axis = 3 if depthwise else 0
        quant = Quant(tuple(scales), (0,) * many, axis)
        weights = self.g.const(self.rng.integers(-127, 128, shape).astype(np.int8), quant=quant)
        numbers = self.rng.integers(-2000, 2000, many).astype(np.int32)
        bias = self.g.const(numbers, quant=Quant(tuple(scales * self.scale), (0,) * many))
        ins = [self.x, weights, bias]
        out = (n, -(-h // stride), -(-w // stride), many)
        y = self.out(out, 6 / 255, -128) if activation else self.out(out, 0.05, 3)
        fields: dict[str, Any] = {
            "Padding": 0,
            "StrideW": stride,
            "StrideH": stride,
            "FusedActivationFunction": activation,
        }
        fields |= {"DilationWFactor": 1, "DilationHFactor": 1}
        if depthwise:
            self.g.op("DEPTHWISE_CONV_2D", ins, [y], "DepthwiseConv2DOptions", DepthMultiplier=1, **fields, version=3)
        else:
            self.g.op("CONV_2D", ins, [y], "Conv2DOptions", **fields, version=3)

    def block(self, expansion: int, channels: int, stride: int) -> None:
        """An inverted residual."""
        before, shape = self.x, self.shape
        if expansion > 1:
            self.conv(shape[3] * expansion, 1)
        self.conv(0, 3, stride, depthwise=True)
        self.conv(channels, 1, activation=0)
        if self.shape == shape:
            own = self.x
            y = self.out(shape, 0.07, -4)
            self.g.op("ADD", [before, own], [y], "AddOptions", FusedActivationFunction=0, version=2)


def mobilenet_v2(size: int = 224) -> bytes:
    """The file."""
    net = Net(size)
    net.conv(32, 3, 2)
    for expansion, channels, count, stride in BLOCKS:
        for i in range(count):
            net.block(expansion, channels, stride if i == 0 else 1)
    net.conv(1280, 1)
    features = net.x
    y = net.out((1, 1, 1, 1280), net.scale, -128)
    axes = net.g.const(np.int32([1, 2]))
    net.g.op("MEAN", [features, axes], [y], "ReducerOptions", KeepDims=True, version=2)
    net.conv(1000, 1, activation=0)
    scores = net.x
    rows = net.out((1, 1000), net.scale, 3)
    net.g.op("RESHAPE", [scores, net.g.const(np.int32([1, 1000]))], [rows], "ReshapeOptions", NewShape=[1, 1000])
    y = net.out((1, 1000), 1 / 256, -128)
    net.g.op("SOFTMAX", [rows], [y], "SoftmaxOptions", Beta=1.0, version=2)
    net.g.outputs = [y]
    return write_model(net.g)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(mobilenet_v2())
