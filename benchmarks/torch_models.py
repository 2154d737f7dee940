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


class Part(nn.Module):
    """A module that returns one tensor of the outputs of `inner`."""

    def __init__(self, inner: Any, pick: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inner, self.pick = inner, pick

    def forward(self, x: Any) -> Any:
        """The tensor."""
        return self.pick(self.inner(x))


class UNet(nn.Module):
    """U-Net of four levels from 32 channels, with batch normalisation; one plane out (Ronneberger et al., 2015)."""

    def __init__(self, width: int = 32, levels: int = 4) -> None:
        super().__init__()
        sizes = [width << i for i in range(levels + 1)]
        self.down = nn.ModuleList(self._block(a, b) for a, b in zip([3, *sizes[:-2]], sizes[:-1], strict=True))
        self.middle = self._block(sizes[-2], sizes[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, 2) for c in sizes[-2::-1])
        self.join = nn.ModuleList(self._block(2 * c, c) for c in sizes[-2::-1])
        self.last = nn.Conv2d(width, 1, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Sequential:
        pairs = [(inputs, outputs), (outputs, outputs)]
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()) for a, b in pairs
        ]
        return nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        """Planes [batch,1,height,width]."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


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


def _ssdlite() -> Any:
    """Scores of all anchors of SSDlite-320, without non-maximum suppression."""
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    inner = nn.ModuleDict({"backbone": model.backbone, "head": model.head})

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            found = self.inner["head"](list(self.inner["backbone"](x).values()))
            return torch.cat([found["cls_logits"], found["bbox_regression"]], -1)

    return Scores()


def _lstm(kind: Any) -> Build:
    return lambda: Part(kind(512, 512, num_layers=2, bidirectional=True, batch_first=True), lambda found: found[0])


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return Part(BertModel(BertConfig()), lambda found: found.last_hidden_state)


def _whisper() -> Any:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return Part(WhisperEncoder(config), lambda found: found.last_hidden_state)


def _segformer() -> Any:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    return Part(SegformerForSemanticSegmentation(SegformerConfig()), lambda found: found.logits)


def _sounds(batch: int, rng: Any) -> Any:
    return torch.randn(batch, 80, 3000, generator=rng)


def _sequences(batch: int, rng: Any) -> Any:
    return torch.randn(batch, 100, 512, generator=rng)


_VISION = (
    *("mobilenet_v2", "resnet50", "squeezenet1_1", "vgg16", "vit_b_16", "densenet121", "convnext_tiny"),
    *("efficientnet_b0", "swin_t", "mobilenet_v3_large", "regnet_y_800mf", "resnext50_32x4d", "efficientnet_v2_s"),
    "maxvit_t",
)
NETWORKS: dict[str, Network] = {
    **{name: Network(_vision(name), images(224)) for name in _VISION},
    "inception_v3": Network(_inception, images(299)),
    "googlenet": Network(_googlenet, images(224)),
    "deeplabv3_resnet50": Network(_segmentation("deeplabv3_resnet50"), images(520)),
    "ssdlite320": Network(_ssdlite, images(320)),
    "segformer_b0": Network(_segformer, images(512)),
    "unet_512": Network(UNet, images(512)),
    "lstm": Network(_lstm(nn.LSTM), _sequences),
    "gru": Network(_lstm(nn.GRU), _sequences),
    "bert_base": Network(_bert, words(128)),
    "whisper_tiny": Network(_whisper, _sounds),
}


def find(name: str) -> Network:
    """The entry of NETWORKS, else an image network of torchvision or, as `timm:NAME`, of timm. KeyError: neither."""
    if name in NETWORKS:
        return NETWORKS[name]
    if name.startswith("timm:"):
        import timm

        model = name.removeprefix("timm:")
        size = timm.get_pretrained_cfg(model, allow_unregistered=False).input_size
        return Network(lambda: timm.create_model(model, pretrained=False), images(*size[1:]))
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


def export(model: Any, x: Any) -> bytes:
    """`model` as an ONNX file for the shape of `x`."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), stream, dynamo=False, opset_version=17, input_names=["input"])
    return stream.getvalue()
