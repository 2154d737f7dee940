"""Networks that no package has, and those of transformers, as makers for benchmarks/torch_models.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Part(nn.Module):
    """A module that returns one tensor of the outputs of `inner`."""

    def __init__(self, inner: Any, pick: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inner, self.pick = inner, pick

    def forward(self, x: Any) -> Any:
        """The tensor."""
        return self.pick(self.inner(x))


class Encoder(nn.Module):
    """The last hidden state of a model of transformers for words that are all seen."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        """Numbers of words [batch,count] to [batch,count,width]."""
        return self.inner(x, attention_mask=torch.ones_like(x)).last_hidden_state


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


class DiffusionBlock(nn.Module):
    """The first level of Stable Diffusion 1's UNet: residual block, self and cross attention of 8 heads of 40."""

    def __init__(self, channels: int = 320, heads: int = 8, words: int = 77, context: int = 768) -> None:
        super().__init__()
        self.heads = heads
        self.enter = nn.Conv2d(4, channels, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.into, self.out = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.layers = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.own = nn.ModuleList(nn.Linear(channels, channels, bias=False) for _ in range(3))
        self.cross = nn.ModuleList(nn.Linear(n, channels, bias=False) for n in (channels, context, context))
        self.after = nn.ModuleList(nn.Linear(channels, channels) for _ in range(2))
        self.wide, self.narrow = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)
        self.register_buffer("text", torch.randn(1, words, context))

    def _attend(self, q: Any, k: Any, v: Any) -> Any:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, x: Any) -> Any:
        """Latents [batch,4,height,width] to features [batch,channels,height,width]."""
        x = self.enter(x)
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=False):
            y = conv(functional.silu(norm(y)))
        x = x + y
        size = x.shape[2:]
        y = self.into(self.norms[2](x)).flatten(2).transpose(1, 2)
        z = self.layers[0](y)
        y = y + self.after[0](self._attend(*(f(z) for f in self.own)))
        text = self.text.expand(x.shape[0], -1, -1)
        q, k, v = self.cross
        y = y + self.after[1](self._attend(q(self.layers[1](y)), k(text), v(text)))
        value, gate = self.wide(self.layers[2](y)).chunk(2, -1)
        y = y + self.narrow(value * functional.gelu(gate))
        return x + self.out(y.transpose(1, 2).unflatten(2, size))


class SelectiveScan(nn.Module):
    """Layers like Mamba's (Gu and Dao, 2023), whose scan is written as cumulative sums of logarithms."""

    def __init__(self, width: int = 256, states: int = 16, layers: int = 4) -> None:
        super().__init__()
        wide = 2 * width
        self.states = states
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.enters = nn.ModuleList(nn.Linear(width, 2 * wide) for _ in range(layers))
        self.convs = nn.ModuleList(nn.Conv1d(wide, wide, 4, padding=3, groups=wide) for _ in range(layers))
        self.picks = nn.ModuleList(nn.Linear(wide, 2 * states + 1) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(wide, width) for _ in range(layers))
        self.decays = nn.ParameterList(nn.Parameter(0.1 * torch.rand(wide, states)) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        """Sequences [batch,count,width] to the same."""
        count = x.shape[1]
        layers = zip(self.norms, self.enters, self.convs, self.picks, self.outs, self.decays, strict=True)
        for norm, enter, conv, pick, out, decay in layers:
            y, gate = enter(norm(x)).chunk(2, -1)
            y = functional.silu(conv(y.transpose(1, 2))[..., :count].transpose(1, 2))
            into, read, step = pick(y).split((self.states, self.states, 1), -1)
            step = 0.1 * functional.softplus(step)
            total = torch.cumsum(-step.unsqueeze(-1) * decay, 1)  # [batch,count,wide,states]
            added = (step * y).unsqueeze(-1) * into.unsqueeze(2)
            state = torch.exp(total) * torch.cumsum(added * torch.exp(-total), 1)
            x = x + out((state * read.unsqueeze(2)).sum(-1) * functional.silu(gate))
        return x


class Vocoder(nn.Module):
    """A generator like HiFi-GAN's (Kong et al., 2020): transposed convolutions and dilated residual blocks."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.enter = nn.Conv1d(80, width, 7, padding=3)
        sizes = [width >> i for i in range(5)]
        ups = zip(sizes, sizes[1:], (16, 16, 4, 4), (8, 8, 2, 2), strict=False)
        self.ups = nn.ModuleList(nn.ConvTranspose1d(a, b, k, s, (k - s) // 2) for a, b, k, s in ups)
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.ModuleList(nn.Conv1d(c, c, k, dilation=d, padding=d * (k - 1) // 2) for d in (1, 3, 5))
                for k in (3, 7, 11)
            )
            for c in sizes[1:]
        )
        self.leave = nn.Conv1d(sizes[-1], 1, 7, padding=3)

    def forward(self, x: Any) -> Any:
        """Mel spectrograms [batch,80,frames] to waves [batch,1,256 * frames]."""
        x = self.enter(x)
        for up, kernels in zip(self.ups, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            sums = []
            for convs in kernels:
                y = x
                for conv in convs:
                    y = y + conv(functional.leaky_relu(y, 0.1))
                sums.append(y)
            x = sum(sums) / len(sums)
        return torch.tanh(self.leave(functional.leaky_relu(x, 0.1)))


class Translator(nn.Module):
    """A recurrent encoder and decoder with attention between them, as of seq2seq models."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.encoder = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.key, self.out = nn.Linear(width, width), nn.Linear(2 * width, 1000)

    def forward(self, x: Any) -> Any:
        """Sequences [batch,count,width] to scores [batch,count,1000]."""
        seen, _ = self.encoder(x)
        y, _ = self.decoder(x.flip(1))
        weights = torch.softmax(y @ self.key(seen).transpose(1, 2) * seen.shape[-1] ** -0.5, -1)
        return self.out(torch.cat((y, weights @ seen), -1))


def ssdlite() -> Any:
    """Scores of all anchors of SSDlite-320, without non-maximum suppression."""
    import torchvision

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


def lstm(kind: Any) -> Callable[[], Any]:
    """Two bidirectional recurrent layers of 512."""
    return lambda: Part(kind(512, 512, num_layers=2, bidirectional=True, batch_first=True), lambda found: found[0])


def encoder(kind: str, **settings: Any) -> Callable[[], Any]:
    """An Encoder of transformers' `kind`Model with its default configuration and `settings`."""

    def made() -> Any:
        import transformers

        config = getattr(transformers, kind.removesuffix("Text") + ("TextConfig" if "Text" in kind else "Config"))
        model = getattr(transformers, kind + "Model")(config(attn_implementation="eager", **settings))
        return Encoder(model)

    return made


def whisper(**sizes: int) -> Callable[[], Any]:
    """Whisper's encoder."""

    def made() -> Any:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        return Part(WhisperEncoder(WhisperConfig(**sizes)), lambda found: found.last_hidden_state)

    return made


def segformer() -> Any:
    """Segformer-B0 with scores at a quarter of the size."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    return Part(SegformerForSemanticSegmentation(SegformerConfig()), lambda found: found.logits)
