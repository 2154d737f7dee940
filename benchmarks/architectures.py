"""Exports sixty architectures of timm, torchvision and transformers with random weights, for benchmarks.planning.


    python -m benchmarks.architectures FOLDER                    # all that FOLDER lacks; takes an hour
    python -m benchmarks.architectures FOLDER hrnet_w18 vits     # these

Needs torch 2.14, torchvision, timm, transformers and onnx, but not opalite or its dependencies. Each model is exported
in its own process by `torch.onnx.export(dynamo=False)`, whose graphs have the most nodes. `-open` in a name: its input
sizes are open. Weights are random, and small members of a family represent large ones, because planning time depends on
the number and kind of nodes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMM = {
    "coatnet_0_rw_224": 224,
    "hrnet_w18": 224,
    "nasnetalarge": 331,
    "convnext_tiny": 224,
    "swin_tiny_patch4_window7_224": 224,
    "swinv2_tiny_window8_256": 256,
    "maxvit_tiny_tf_224": 224,
    "efficientvit_b0": 224,
    "efficientnet_b0": 224,
    "efficientformerv2_s0": 224,
    "mobilevit_s": 256,
    "mobilenetv4_conv_small": 224,
    "fastvit_t8": 256,
    "edgenext_small": 256,
    "levit_128": 224,
    "deit_tiny_patch16_224": 224,
    "eva02_tiny_patch14_224": 224,
    "cait_xxs24_224": 224,
    "xcit_nano_12_p16_224": 224,
    "crossvit_tiny_240": 240,
    "twins_svt_small": 224,
    "pvt_v2_b0": 224,
    "poolformer_s12": 224,
    "mixer_s32_224": 224,
    "ghostnet_100": 224,
    "regnety_002": 224,
    "res2net50_26w_4s": 224,
    "resnest14d": 224,
    "dla34": 224,
    "dpn68": 224,
    "inception_v4": 299,
    "convmixer_768_32": 224,
    "tnt_s_patch16_224": 224,
    "davit_tiny": 224,
    "focalnet_tiny_srf": 224,
    "repvit_m0_9": 224,
    "gcvit_xxtiny": 224,
    "sequencer2d_s": 224,
    "mvitv2_tiny": 224,
    "densenet121-open": 224,
}
"""Names of timm, and pixels along an edge."""

TORCHVISION = {
    "ssdlite320_mobilenet_v3_large": ("detection", 320),
    "fasterrcnn_mobilenet_v3_large_320_fpn": ("detection", 320),
    "deeplabv3_mobilenet_v3_large-open": ("segmentation", 224),
    "shufflenet_v2_x0_5-open": ("", 224),
    "s3d": ("video", 224),
}
"""Names of torchvision, the module there, and pixels along an edge."""


def _text(name: str, config: str, **sizes: int) -> Callable[[], Any]:
    """A text model with open batch and length."""

    def build() -> Any:
        import torch
        import transformers

        made = getattr(transformers, config)(**sizes)
        made._attn_implementation = "eager"
        model = getattr(transformers, name)(made)
        return model, (torch.ones(1, 24, dtype=torch.long),), {"input_ids": {0: "batch", 1: "length"}}

    return build


def _speech(name: str, config: str, features: int = 0, count: int = 16000, **sizes: Any) -> Callable[[], Any]:
    """An audio model with open length: samples, or frames of `features` values."""

    def build() -> Any:
        import torch
        import transformers

        made = getattr(transformers, config)(**sizes)
        made._attn_implementation = "eager"
        model = getattr(transformers, name)(made)
        shape = (1, count, features) if features else (1, count)
        return model, (torch.randn(*shape),), {"input_values": {1: "length"}}

    return build


def _picture(name: str, config: str, size: int = 224, **sizes: Any) -> Callable[[], Any]:
    def build() -> Any:
        import torch
        import transformers

        made = getattr(transformers, config)(**sizes)
        made._attn_implementation = "eager"
        return getattr(transformers, name)(made), (torch.randn(1, 3, size, size),), {}

    return build


def _vits() -> Any:
    """A text-to-speech model; durations come from the text, so that no shape depends on contents."""
    import torch
    import transformers

    model = transformers.VitsModel(transformers.VitsConfig())

    class Decoder(torch.nn.Module):
        """Flow and vocoder: latents [1, C, frames] to samples."""

        def __init__(self) -> None:
            super().__init__()
            self.flow, self.decoder = model.flow, model.decoder

        def forward(self, latents: Any) -> Any:
            mask = torch.ones_like(latents[:, :1])
            return self.decoder(self.flow(latents, mask, reverse=True))

    return Decoder(), (torch.randn(1, model.config.flow_size, 40),), {"latents": {2: "length"}}


TRANSFORMERS: dict[str, Callable[[], Any]] = {
    "bert-open": _text("BertModel", "BertConfig", hidden_size=256, num_attention_heads=4, intermediate_size=1024),
    "albert-open": _text("AlbertModel", "AlbertConfig"),
    "deberta_v2-open": _text(
        "DebertaV2Model", "DebertaV2Config", hidden_size=384, num_attention_heads=6, intermediate_size=1536
    ),
    "t5_encoder-open": _text("T5EncoderModel", "T5Config"),
    "mpnet-open": _text("MPNetModel", "MPNetConfig", hidden_size=384, intermediate_size=1536),
    "wav2vec2-open": _speech("Wav2Vec2Model", "Wav2Vec2Config", hidden_size=384, intermediate_size=1536),
    "wav2vec2_conformer-open": _speech(
        "Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", hidden_size=384, intermediate_size=1536
    ),
    "wav2vec2_bert-open": _speech(
        "Wav2Vec2BertModel",
        "Wav2Vec2BertConfig",
        features=160,
        count=100,
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=24,
    ),
    "hubert-open": _speech("HubertModel", "HubertConfig", hidden_size=384, intermediate_size=1536),
    "sew_d-open": _speech("SEWDModel", "SEWDConfig", hidden_size=384, num_attention_heads=6, intermediate_size=1536),
    "vits-open": _vits,
    "segformer": _picture("SegformerForSemanticSegmentation", "SegformerConfig"),
    "mobilevitv2": _picture("MobileViTV2Model", "MobileViTV2Config", 256),
    "swin2sr": _picture("Swin2SRForImageSuperResolution", "Swin2SRConfig", 64),
    "yolos": _picture("YolosForObjectDetection", "YolosConfig", 256, image_size=[256, 256], hidden_size=192),
}
"""Builders of transformers' architectures: a module, its inputs and their open axes."""


def names() -> list[str]:
    """All architectures."""
    return [*TIMM, *TORCHVISION, *TRANSFORMERS]


def _build(name: str) -> tuple[Any, tuple[Any, ...], dict[str, dict[int, str]]]:
    import torch

    bare = name.removesuffix("-open")
    open_axes = {"x": {0: "batch", 2: "height", 3: "width"}} if bare != name else {}
    if name in TRANSFORMERS:
        return TRANSFORMERS[name]()
    if name in TIMM:
        import timm

        return timm.create_model(bare, exportable=True), (torch.randn(1, 3, TIMM[name], TIMM[name]),), open_axes
    import torchvision

    module, size = TORCHVISION[name]
    family = getattr(torchvision.models, module) if module else torchvision.models
    shape = (1, 3, 16, size, size) if module == "video" else (1, 3, size, size)
    options = {"weights": None, **({} if module in ("", "video") else {"weights_backbone": None})}
    x = torch.randn(*shape)
    return getattr(family, bare)(**options), ((list(x),) if module == "detection" else (x,)), open_axes


def _first_output(model: Any) -> Any:
    """A module that gives the first output of one of transformers'."""
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            found = self.model(x)
            return found if isinstance(found, torch.Tensor) else found[0]

    return First()


def export(name: str, path: Path) -> None:
    """Write the architecture `name` to `path`."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inputs, axes = _build(name)
    if name in TRANSFORMERS:
        model = _first_output(model)
    with torch.no_grad():
        torch.onnx.export(
            model.eval(),
            inputs,
            str(path),
            dynamo=False,
            opset_version=18,
            input_names=list(axes) or ["x"],
            dynamic_axes=axes,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    unknown = set(given.names) - set(names())
    if unknown:
        parser.error(f"unknown architectures {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    given.folder.mkdir(parents=True, exist_ok=True)
    if len(given.names) == 1:
        export(given.names[0], given.folder / f"{given.names[0]}.onnx")
        return
    for name in given.names or names():
        if (given.folder / f"{name}.onnx").exists():
            continue
        command = [sys.executable, "-m", "benchmarks.architectures", str(given.folder), name]
        done = subprocess.run(command, capture_output=True, text=True)
        last = done.stderr.strip().rsplit("\n", 1)[-1]
        print(name, "exported" if done.returncode == 0 else f"failed: {last}", flush=True)
        if done.returncode:
            (given.folder / f"{name}.onnx").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
