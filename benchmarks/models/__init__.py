"""Well-known networks built in code with seeded random weights: structure and cost are real, answers are not.


model = build("mobilenet_v2")            # batch 1
model = build("resnet50", batch="N")     # free batch
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx

from . import (
    densenet,
    diffusion,
    efficientnet,
    inception,
    mobilenet,
    plain,
    recurrent,
    resnet,
    shufflenet,
    speech,
    transformer,
    unet,
    yolo,
    yolo11,
)
from .net import Batch

_BUILDERS: dict[str, Callable[[Batch], onnx.ModelProto]] = {
    "mobilenet_v1": mobilenet.v1,
    "mobilenet_v2": mobilenet.v2,
    "mobilenet_v3_small": partial(mobilenet.v3, size="small"),
    "mobilenet_v3_large": partial(mobilenet.v3, size="large"),
    "resnet18": partial(resnet.resnet, depth=18),
    "resnet_cifar": resnet.resnet_cifar,
    "resnet50": partial(resnet.resnet, depth=50),
    "squeezenet1_1": plain.squeezenet,
    "alexnet": plain.alexnet,
    "vgg16": plain.vgg16,
    "inception_v1": inception.v1,
    "inception_v3": inception.v3,
    "densenet121": densenet.densenet121,
    "shufflenet_v1": shufflenet.shufflenet_v1,
    "shufflenet_v2": shufflenet.shufflenet_v2,
    "efficientnet_b0": efficientnet.b0,
    "yolov8n_320": partial(yolo.yolov8n, size=320),
    "yolov8n_640": partial(yolo.yolov8n, size=640),
    "yolo11n_320": partial(yolo11.yolo11n, size=320),
    "unet_256": unet.unet,
    "vit_tiny": partial(transformer.vit, width=192, heads=3),
    "vit_b16": partial(transformer.vit, width=768, heads=12),
    "minilm_l6": transformer.minilm,
    "lstm_tagger": recurrent.lstm_tagger,
    "sd_block": diffusion.cross_attention_block,
    "conformer_s": speech.conformer,
    "whisper_small": speech.whisper,
}

NAMES = tuple(_BUILDERS)


def build(name: str, batch: Batch = 1) -> onnx.ModelProto:
    """The model called `name`, for a fixed batch size or, given a text, a free one. KeyError for other names."""
    return _BUILDERS[name](batch)
