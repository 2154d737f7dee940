"""The network in torch: a decoder as Llama's, whose weights are rounded to 4 bits while it trains."""

from __future__ import annotations

import numpy as np
import torch
from graph import BLOCK, Shape, rope
from torch import Tensor, nn
from torch.nn import functional


class Round(torch.autograd.Function):
    """Weights as their rounded values are, in blocks of a row; gradients pass as if nothing were rounded."""

    @staticmethod
    def forward(ctx: object, w: Tensor, levels: int, block: int) -> Tensor:
        rows = w.reshape(w.shape[0], -1, block)
        scale = rows.abs().amax(-1, keepdim=True).clamp_min(1e-8) / levels
        return ((rows / scale).round().clamp(-levels, levels) * scale).reshape(w.shape)

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0], None, None


class Linear(nn.Linear):
    """A product without bias, whose weights may be rounded."""

    rounds = False

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(inner, outer, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, Round.apply(self.weight, 7, BLOCK) if self.rounds else self.weight)


class Norm(nn.Module):
    """x / rms(x) * weight over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), 1e-5)


class Layer(nn.Module):
    """x + attention(norm(x)), then x + gated(norm(x))."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        d, head = shape.width, shape.head
        self.norm1, self.norm2 = Norm(d), Norm(d)
        self.q, self.o = Linear(d, shape.heads * head), Linear(shape.heads * head, d)
        self.k, self.v = Linear(d, shape.kv_heads * head), Linear(d, shape.kv_heads * head)
        self.gate, self.up, self.down = Linear(d, shape.hidden), Linear(d, shape.hidden), Linear(shape.hidden, d)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, n, _ = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(b, n, -1, self.shape.head).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        groups = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.o(a.transpose(1, 2).reshape(b, n, -1)))
        y = self.norm2(x)
        return x + self.drop(self.down(functional.silu(self.gate(y)) * self.up(y)))


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [b, heads, n, head] turned by its positions: halves of a head are the two coordinates."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Network(nn.Module):
    """Logits [b, n, vocabulary] of the next token, for tokens [b, n]; the table of tokens is the last product, too."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.table = nn.Parameter(torch.randn(shape.vocabulary, shape.width) * 0.02)
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.layers))
        self.norm, self.drop = Norm(shape.width), nn.Dropout(dropout)
        self.rounds = False
        cos, sin = (torch.from_numpy(a) for a in rope(shape))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, w in self.named_parameters():
            if w.ndim == 2 and name != "table":
                scale = (2 * shape.layers) ** -0.5 if name.endswith(("o.weight", "down.weight")) else 1.0
                nn.init.normal_(w, std=0.5 * w.shape[1] ** -0.5 * scale)

    def round_weights(self) -> None:
        """From now on compute with weights as they will be stored."""
        self.rounds = True
        for m in self.modules():
            if isinstance(m, Linear):
                m.rounds = True

    def forward(self, tokens: Tensor) -> Tensor:
        n, width = tokens.shape[1], self.shape.width
        table = Round.apply(self.table, 127, width) if self.rounds else self.table
        x = self.drop(functional.embedding(tokens, table))
        for layer in self.layers:
            x = layer(x, self.cos[:n].to(x.dtype), self.sin[:n].to(x.dtype))
        head = Round.apply(self.table, 7, BLOCK) if self.rounds else self.table
        return functional.linear(self.norm(x), head)

    def weights(self) -> dict[str, np.ndarray]:
        """Every weight by name, in float32."""
        return {name: w.detach().float().cpu().numpy() for name, w in self.named_parameters()}
