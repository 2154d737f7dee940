"""DenseNet (Huang et al., 2016)."""

from __future__ import annotations

import onnx

from .net import Batch, Net

LAYERS = (6, 12, 24, 16)
GROWTH = 32


def densenet121(batch: Batch) -> onnx.ModelProto:
    """DenseNet-121. Normalisation comes before the convolution, so exporters can fold only every second one."""
    net = Net("densenet121")
    x = net.relu(net.conv_bn(net.input("input", (batch, 3, 224, 224)), 64, 7, stride=2))
    x = net.max_pool(x, 3, 2, 1)
    for stage, layers in enumerate(LAYERS):
        features = [x]
        for _ in range(layers):
            y = net.concat(*features) if len(features) > 1 else x
            y = net.relu(net.conv_bn(net.relu(net.batch_norm(y)), 4 * GROWTH))
            features.append(net.conv(y, GROWTH, 3, bias=False))
        x = net.relu(net.batch_norm(net.concat(*features)))
        if stage < len(LAYERS) - 1:
            x = net.average_pool(net.conv(x, net.channels(x) // 2, bias=False), 2, 2)
    return net.model(net.classifier(x))
