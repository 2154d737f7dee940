"""Networks of torchvision with seeded weights: as PyTorch modules, and exported to ONNX with the same weights."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch
import torchvision

NAMES = ("mobilenet_v2", "resnet50", "squeezenet1_1", "vgg16", "vit_b_16")


def build(name: str, seed: int = 0) -> Any:
    """The network in float32 on the CPU, ready for inference.

    Batch normalisation takes its statistics from random images, and heads that start at zero are drawn anew, so that
    activations keep their size and the answer depends on the input.
    """
    torch.manual_seed(seed)
    model = getattr(torchvision.models, name)(weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # a plain mean over the batches seen
        if isinstance(module, torch.nn.Linear) and not module.weight.any():
            torch.nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5)
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model.to(device).train()
        with torch.no_grad():
            for _ in range(2):
                model(torch.randn(16, 3, 224, 224, device=device))
    return model.cpu().eval()


def images(batch: int, seed: int = 1) -> Any:
    """Random normal images [batch,3,224,224], float32 on the CPU."""
    return torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(seed))


def export(model: Any, batch: int) -> bytes:
    """`model` as an ONNX file for a fixed batch."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (images(batch),), stream, dynamo=False, opset_version=17, input_names=["input"])
    return stream.getvalue()
