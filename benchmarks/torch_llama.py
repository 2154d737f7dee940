"""The decoders of benchmarks/models/llama.py in PyTorch, with caches of a fixed length, run as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.nn import functional

from .models.llama import Packed, Shape


class Weights(Protocol):
    """Arrays in layer order: products [K, N] or Packed, scales of normalisations."""

    embedding: Any
    products: list[Any]
    scales: list[Any]


class Llama:
    """A decoder on the GPU: tokens [1,S] at positions [S] to logits [1,S,words]."""

    def __init__(self, weights: Weights, shape: Shape, length: int, dtype: Any) -> None:
        """length: positions that the caches hold."""

        def put(array: Any) -> Any:
            return torch.tensor(array).to("cuda", dtype)

        self.shape = shape
        self.embedding = put(weights.embedding)
        self.products = [
            _widened(w).to(dtype) if isinstance(w, Packed) else put(w).t().contiguous() for w in weights.products
        ]
        self.scales = [put(w) for w in weights.scales]
        caches = (2, shape.layers, 1, shape.kv_heads, length, shape.head)
        self.caches = torch.zeros(caches, device="cuda", dtype=dtype)
        angles = torch.outer(torch.arange(length), shape.theta ** (-torch.arange(0, shape.head, 2) / shape.head))
        self.cos, self.sin = (f(angles).to("cuda", dtype) for f in (torch.cos, torch.sin))
        self.places = torch.arange(length, device="cuda")

    def __call__(self, ids: Any, positions: Any, is_prefill: bool) -> Any:
        """is_prefill: the tokens are the first, and see each other alone; else one token sees the caches."""
        s = self.shape
        products, scales = iter(self.products), iter(self.scales)
        x = self.embedding[ids]
        for layer in range(s.layers):
            y = self._norm(x, next(scales))
            q, k, v = (functional.linear(y, next(products)).unflatten(-1, (-1, s.head)).transpose(1, 2) for _ in "qkv")
            q, k = self._rotate(q, positions), self._rotate(k, positions)
            keys, values = self.caches[0, layer], self.caches[1, layer]
            keys.index_copy_(2, positions, k)
            values.index_copy_(2, positions, v)
            if is_prefill:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            else:
                seen = (self.places <= positions[0]).view(1, 1, 1, -1)
                y = functional.scaled_dot_product_attention(q, keys, values, seen, enable_gqa=True)
            x = x + functional.linear(y.transpose(1, 2).flatten(-2), next(products))
            y = self._norm(x, next(scales))
            gate, up = (functional.linear(y, next(products)) for _ in "gu")
            x = x + functional.linear(functional.silu(gate) * up, next(products))
        return functional.linear(self._norm(x, next(scales)), next(products))

    def _norm(self, x: Any, scale: Any) -> Any:
        return functional.rms_norm(x, (self.shape.width,), scale, 1e-6)

    def _rotate(self, x: Any, positions: Any) -> Any:
        low, high = x.chunk(2, -1)
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def _widened(packed: Packed) -> Any:
    """[N, K] in float32, on the GPU."""
    numbers, scales = (torch.tensor(a).to("cuda") for a in (packed.numbers, packed.scales))
    wide = torch.stack((numbers & 15, numbers >> 4), -1).flatten(-2).float() - 8
    return (wide * scales.view(*wide.shape[:2], 1)).flatten(-2)[:, : packed.columns].contiguous()


def captures(run: Callable[[], Any], prepare: Callable[[], Any]) -> dict[str, tuple[Callable[[], None], Any]]:
    """`capture` of `run` as it is, by the name "graph", and compiled first, "compiled_graph", if that is possible.

    prepare: sets the inputs before each capture, which runs several times.
    """
    found = {}
    for name, way in (("graph", run), ("compiled_graph", torch.compile(run))):
        prepare()
        try:
            found[name] = capture(way)
        except Exception as e:
            print(f"no {name}: {type(e).__name__}: {e}"[:300], flush=True)
    return found


def capture(run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """(a function that replays `run` as a CUDA graph, its output tensor)."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    return graph.replay, found
