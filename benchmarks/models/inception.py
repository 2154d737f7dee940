"""Inception v1, also called GoogLeNet (Szegedy et al., 2014), and v3 (Szegedy et al., 2015)."""

from __future__ import annotations

import onnx

from .net import Batch, Net

# 1x1; 3x3 reduced and full; 5x5 reduced and full; pool projection of each module, in stages.
V1 = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def v1(batch: Batch) -> onnx.ModelProto:
    """Inception v1 of its authors, with local response normalisation."""
    net = Net("inception_v1")
    x = net.relu(net.conv(net.input("input", (batch, 3, 224, 224)), 64, 7, stride=2))
    x = local_norm(net, net.max_pool(x, 3, 2, ceil=True))
    x = net.relu(net.conv(net.relu(net.conv(x, 64)), 192, 3))
    x = local_norm(net, x)
    for stage in V1:
        x = net.max_pool(x, 3, 2, ceil=True)
        for one, three_in, three, five_in, five, pooled in stage:
            a = net.relu(net.conv(x, one))
            b = net.relu(net.conv(net.relu(net.conv(x, three_in)), three, 3))
            c = net.relu(net.conv(net.relu(net.conv(x, five_in)), five, 5))
            d = net.relu(net.conv(net.max_pool(x, 3, 1, 1), pooled))
            x = net.concat(a, b, c, d)
    x = net.reshape(net.average_pool(x, 7, 1), 0, 1024)
    return net.model(net.op("Softmax", net.gemm(x, 1024, 1000), axis=1))


def local_norm(net: Net, x: str) -> str:
    """LRN over five channels."""
    return net.op("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)


def v3(batch: Batch) -> onnx.ModelProto:
    """Inception v3 without its auxiliary head, input 299x299."""
    net = Net("inception_v3")

    def conv(x: str, out: int, kernel: int | tuple[int, int] = 1, stride: int = 1, pad: int | None = None) -> str:
        return net.relu(net.conv_bn(x, out, kernel, stride=stride, pad=pad))

    def grid(x: str, pooled: int) -> str:
        a = conv(x, 64)
        b = conv(conv(x, 48), 64, 5)
        c = conv(conv(conv(x, 64), 96, 3), 96, 3)
        return net.concat(a, b, c, conv(net.average_pool(x, 3, 1, 1), pooled))

    def lines(x: str, inner: int) -> str:
        a = conv(x, 192)
        b = conv(conv(conv(x, inner), inner, (1, 7)), 192, (7, 1))
        c = conv(conv(conv(x, inner), inner, (7, 1)), inner, (1, 7))
        c = conv(conv(c, inner, (7, 1)), 192, (1, 7))
        return net.concat(a, b, c, conv(net.average_pool(x, 3, 1, 1), 192))

    def fan(x: str) -> str:
        a = conv(x, 320)
        b = conv(x, 384)
        c = conv(conv(x, 448), 384, 3)
        b = net.concat(conv(b, 384, (1, 3)), conv(b, 384, (3, 1)))
        c = net.concat(conv(c, 384, (1, 3)), conv(c, 384, (3, 1)))
        return net.concat(a, b, c, conv(net.average_pool(x, 3, 1, 1), 192))

    x = conv(net.input("input", (batch, 3, 299, 299)), 32, 3, 2, 0)
    x = conv(conv(x, 32, 3, pad=0), 64, 3)
    x = conv(conv(net.max_pool(x, 3, 2), 80), 192, 3, pad=0)
    x = net.max_pool(x, 3, 2)
    for pooled in (32, 64, 64):
        x = grid(x, pooled)
    deep = conv(conv(conv(x, 64), 96, 3), 96, 3, 2, 0)
    x = net.concat(conv(x, 384, 3, 2, 0), deep, net.max_pool(x, 3, 2))
    for inner in (128, 160, 160, 192):
        x = lines(x, inner)
    wide = conv(conv(x, 192), 320, 3, 2, 0)
    deep = conv(conv(conv(conv(x, 192), 192, (1, 7)), 192, (7, 1)), 192, 3, 2, 0)
    x = net.concat(wide, deep, net.max_pool(x, 3, 2))
    return net.model(net.classifier(fan(fan(x))))
