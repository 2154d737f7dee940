"""Networks with seeded weights: as PyTorch modules, and exported to ONNX with the same weights.

Networks of torchvision keep their names. Others are a U-Net, recurrent layers, and encoders of the transformers
package. Any other network of torchvision, and of PyTorch Image Models as `timm:NAME`, is found by name.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torchvision
from torch import nn

from .torch_networks import (
    DiffusionBlock,
    Part,
    SelectiveScan,
    Translator,
    UNet,
    Vocoder,
    encoder,
    lstm,
    segformer,
    ssdlite,
    whisper,
)

Build = Callable[[], Any]
Sample = Callable[[int, Any], Any]


def images(height: int, width: int | None = None) -> Sample:
    """Random normal images [batch,3,height,width], float32."""
    return lambda batch, rng: torch.randn(batch, 3, height, width or height, generator=rng)


def words(count: int, vocabulary: int = 30522) -> Sample:
    """Numbers of words [batch,count], int64."""
    return lambda batch, rng: torch.randint(0, vocabulary, (batch, count), generator=rng)


@dataclass(frozen=True)
class Network:
    """build: the module with drawn weights. sample: an input for a batch and a generator."""

    build: Build
    sample: Sample


def _vision(name: str) -> Build:
    return lambda: getattr(torchvision.models, name)(weights=None)


def _inception() -> Any:
    return torchvision.models.inception_v3(weights=None, init_weights=False, aux_logits=False)


def _googlenet() -> Any:
    return torchvision.models.googlenet(weights=None, init_weights=False, aux_logits=False)


def _segmentation(name: str) -> Build:
    def made() -> Any:
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
        return Part(model, lambda found: found["out"])

    return made


def _sounds(batch: int, rng: Any) -> Any:
    return torch.randn(batch, 80, 3000, generator=rng)


def _sequences(count: int, width: int) -> Sample:
    return lambda batch, rng: torch.randn(batch, count, width, generator=rng)


def _latents(batch: int, rng: Any) -> Any:
    return torch.randn(batch, 4, 64, 64, generator=rng)


def _spectrograms(batch: int, rng: Any) -> Any:
    return torch.randn(batch, 80, 200, generator=rng)


_VISION = (
    *("mobilenet_v2", "resnet50", "squeezenet1_1", "vgg16", "vit_b_16", "densenet121", "convnext_tiny"),
    *("efficientnet_b0", "swin_t", "mobilenet_v3_large", "regnet_y_800mf", "resnext50_32x4d", "efficientnet_v2_s"),
    *("swin_v2_t", "maxvit_t"),
)


def _timm(model: str) -> Build:
    def made() -> Any:
        import timm

        return timm.create_model(model, pretrained=False)

    return made


_TIMM = (
    *("convnextv2_nano", "repvgg_a2", "coatnet_0_rw_224", "hrnet_w18", "mixer_b16_224", "efficientvit_b1"),
    "vit_small_patch16_224",
)
"""Networks of timm for images of 224²; others are found by name."""
NETWORKS: dict[str, Network] = {
    **{name: Network(_vision(name), images(224)) for name in _VISION},
    **{f"timm:{name}": Network(_timm(name), images(224)) for name in _TIMM},
    "inception_v3": Network(_inception, images(299)),
    "googlenet": Network(_googlenet, images(224)),
    "deeplabv3_resnet50": Network(_segmentation("deeplabv3_resnet50"), images(520)),
    "ssdlite320": Network(ssdlite, images(320)),
    "segformer_b0": Network(segformer, images(512)),
    "unet_512": Network(UNet, images(512)),
    "lstm": Network(lstm(nn.LSTM), _sequences(100, 512)),
    "gru": Network(lstm(nn.GRU), _sequences(100, 512)),
    "gru_seq2seq": Network(Translator, _sequences(50, 512)),
    "mamba_like": Network(SelectiveScan, _sequences(128, 256)),
    "sd_unet_block": Network(DiffusionBlock, _latents),
    "hifigan": Network(Vocoder, _spectrograms),
    "bert_base": Network(encoder("Bert"), words(128)),
    "deberta_v2": Network(
        encoder("DebertaV2", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072),
        words(128),
    ),
    "gpt2_prefill128": Network(encoder("GPT2", use_cache=False), words(128)),
    "clip_text": Network(encoder("CLIPText"), words(77, 49408)),
    "whisper_tiny": Network(
        whisper(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536), _sounds
    ),
}


def find(name: str) -> Network:
    """The entry of NETWORKS, else an image network of torchvision or, as `timm:NAME`, of timm. KeyError: neither."""
    if name in NETWORKS:
        return NETWORKS[name]
    if name.startswith("timm:"):
        import timm

        model = name.removeprefix("timm:")
        size = timm.get_pretrained_cfg(model, allow_unregistered=False).input_size
        return Network(_timm(model), images(*size[1:]))
    if name in torchvision.models.list_models(torchvision.models.segmentation):
        return Network(_segmentation(name), images(520))
    if name in torchvision.models.list_models(torchvision.models):
        return Network(_vision(name), images(224))
    raise KeyError(f"{name} is no network of benchmarks/torch_models.py, torchvision or timm (timm:NAME)")


def build(name: str, seed: int = 0) -> Any:
    """The network in float32 on the CPU, ready for inference.

    Batch normalisation takes its statistics from random inputs, and heads that start at zero are drawn anew, so that
    activations keep their size and the answer depends on the input.
    """
    torch.manual_seed(seed)
    network = find(name)
    model = network.build()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # a plain mean over the batches seen
        if isinstance(module, torch.nn.Linear) and not module.weight.any():
            torch.nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5)
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model.to(device).train()
        rng = torch.Generator().manual_seed(seed + 2)
        with torch.no_grad():
            for _ in range(2):
                model(network.sample(16, rng).to(device))
    return model.cpu().eval()


def sample(name: str, batch: int, seed: int = 1) -> Any:
    """A random input of the network, on the CPU."""
    return find(name).sample(batch, torch.Generator().manual_seed(seed))


def export(model: Any, x: Any, *, symbolic: bool = False) -> bytes:
    """`model` as an ONNX file for the shape of `x`. symbolic: for any batch."""
    stream = io.BytesIO()
    axes = {"input": {0: "batch"}} if symbolic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), stream, dynamo=False, opset_version=17, input_names=["input"], dynamic_axes=axes)
    return stream.getvalue()
