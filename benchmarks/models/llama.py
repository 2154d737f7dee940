"""Decoders that generate text: Llama (Touvron et al., 2023) and Qwen2, with caches of keys and values.

    model = decoder(LLAMA_110M)                      # float32, caches joined by Concat as optimum's exporter has them
    model = decoder(LLAMA_110M, bits=4)              # MatMulNBits, as onnxruntime's quantiser writes them
    model = decoder(QWEN2_0_5B, cache="grouped")     # GroupQueryAttention, as onnxruntime-genai's builder has them
    save(model, folder / "model.onnx")               # weights in a file of their own
    feeds = step_feeds(LLAMA_110M, past=128, new=1)

Inputs are input_ids [N,S], attention_mask [N,P+S], position_ids [N,S] (by Concat only) and past_key_values.L.key and
.value [N,kv_heads,P,head]; outputs logits [N,S,words] and present.L.key and .value, all with the usual names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import onnx
from onnx import TensorProto, helper

from .net import LINEAR_GAIN, Batch, Net

Array = np.ndarray[Any, Any]

MS = "com.microsoft"
RESIDUAL = 0.5  # variance of a block's last layer, so that a deep sum does not grow


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder. tied: the last product's weights are the embedding's. bias: of queries, keys and values."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    words: int
    tied: bool = False
    bias: bool = False
    positions: int = 2048
    theta: float = 10000.0

    @property
    def head(self) -> int:
        """Elements of one head."""
        return self.width // self.heads


class Packed(NamedTuple):
    """Weights [N,K] of 4 bits without zero points, as MatMulNBits takes them: bytes [N,blocks,block/2], scales."""

    numbers: Array
    scales: Array
    columns: int


LLAMA_TINY = Shape(layers=2, width=64, heads=4, kv_heads=2, inner=160, words=96, positions=256)
LLAMA_110M = Shape(layers=12, width=768, heads=12, kv_heads=12, inner=2048, words=32000)
LLAMA_1B = Shape(layers=16, width=2048, heads=32, kv_heads=8, inner=8192, words=32000, positions=4096)
QWEN2_0_5B = Shape(
    layers=24, width=896, heads=14, kv_heads=2, inner=4864, words=151936, tied=True, bias=True, theta=1e6
)


def decoder(
    shape: Shape,
    batch: Batch = 1,
    *,
    bits: int = 0,
    block: int = 32,
    zeros: bool = False,
    accuracy: int = 0,
    cache: str = "concat",
    seed: int = 0,
    drawn: int = 0,
) -> onnx.ModelProto:
    """A decoder with seeded weights. bits: 0 for float32, else products are MatMulNBits with blocks of `block`.

    zeros: blocks have packed zero points. accuracy: the products' accuracy_level. cache: "concat" or "grouped". A tied
    embedding of quantised weights is GatherBlockQuantized of the bytes that the last product multiplies by. drawn: so
    many random numbers are drawn for all weights, which repeat them, where 0 draws each: a billion take a minute.
    """
    return _Decoder(shape, batch, bits, block, zeros, accuracy, cache, seed, drawn).model()


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Writes `model` with its weights in an external file; `model` loses its weights."""
    data = path.with_suffix(".onnx.data").name
    (path.parent / data).unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=data, size_threshold=1024)
    return path


def step_feeds(shape: Shape, past: int, new: int, batch: int = 1, *, cache: str = "concat", seed: int = 0) -> Any:
    """Inputs for `new` tokens after `past` of them, whose cached keys and values are random."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {
        "input_ids": rng.integers(0, shape.words, (batch, new)),
        "attention_mask": np.ones((batch, past + new), np.int64),
    }
    if cache == "concat":
        feeds["position_ids"] = np.broadcast_to(np.arange(past, past + new), (batch, new)).copy()
    for name in past_names(shape):
        feeds[name] = rng.standard_normal((batch, shape.kv_heads, past, shape.head), np.float32)
    return feeds


def past_names(shape: Shape) -> list[str]:
    """The inputs that hold earlier keys and values; that of `present` for each is the output that goes there."""
    return [f"past_key_values.{i}.{part}" for i in range(shape.layers) for part in ("key", "value")]


def blocks_of(weights: Array, bits: int, block: int, zeros: bool) -> tuple[Array, Array, Array | None]:
    """Rows [N,K] as (bytes [N,blocks,block*bits/8], scales [N,blocks], packed zero points [N,bytes] or None)."""
    rows, columns = weights.shape
    count = -(-columns // block)
    padded = np.zeros((rows, count * block), np.float32)
    padded[:, :columns] = weights
    parts = padded.reshape(rows, count, block)
    most, middle = (1 << bits) - 1, 1 << (bits - 1)
    if zeros:
        low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
        scales = np.maximum(high - low, 1e-9) / most
        zero = np.clip(np.rint(-low / scales), 0, most).astype(np.uint8)
    else:
        scales = np.maximum(np.abs(parts).max(-1), 1e-9) / (middle - 1)
        zero = np.full(scales.shape, middle, np.uint8)
    q = np.clip(np.rint(parts / scales[..., None]) + zero[..., None], 0, most).astype(np.uint8)
    packed = pack(q, bits)
    return packed, scales.astype(np.float32), pack(zero, bits) if zeros else None


def pack(q: Array, bits: int) -> Array:
    """Numbers of `bits` bits as bytes along the last axis, the first in the low bits; zeros fill the last byte."""
    each = 8 // bits
    padded = np.zeros((*q.shape[:-1], -(-q.shape[-1] // each) * each), np.uint8)
    padded[..., : q.shape[-1]] = q
    out = np.zeros((*q.shape[:-1], padded.shape[-1] // each), np.uint8)
    for i in range(each):
        out |= padded[..., i::each] << (i * bits)
    return out


class _Decoder:
    """One decoder under construction."""

    def __init__(
        self,
        shape: Shape,
        batch: Batch,
        bits: int,
        block: int,
        zeros: bool,
        accuracy: int,
        cache: str,
        seed: int,
        drawn: int,
    ) -> None:
        self.shape, self.batch, self.bits, self.block, self.zeros = shape, batch, bits, block, zeros
        self.accuracy, self.grouped = accuracy, cache == "grouped"
        self.net = Net("decoder", opset=17, seed=seed, domains=(MS,), drawn=drawn)
        self.drawn = drawn

    def model(self) -> onnx.ModelProto:
        net, s = self.net, self.shape
        ids = net.input("input_ids", (self.batch, "sequence"), TensorProto.INT64)
        mask = net.input("attention_mask", (self.batch, "past + sequence"), TensorProto.INT64)
        positions = "" if self.grouped else net.input("position_ids", (self.batch, "sequence"), TensorProto.INT64)
        pasts = [net.input(name, (self.batch, s.kv_heads, "past", s.head)) for name in past_names(s)]
        angles = np.outer(np.arange(s.positions), s.theta ** (-np.arange(0, s.head, 2) / s.head))
        tables = net.constant(np.cos(angles), "cos_cache"), net.constant(np.sin(angles), "sin_cache")
        if self.grouped:
            attend = self._lengths(mask, tables)
        else:
            attend = self._elementary(ids, mask, positions, pasts[0], tables)
        x, last = self._embedding(ids)
        presents: list[str] = []
        for i in range(s.layers):
            y = self._rms_norm(x)
            q, k, v = (self._linear(y, s.width, heads * s.head, s.bias) for heads in (s.heads, s.kv_heads, s.kv_heads))
            y, *present = attend(q, k, v, *pasts[2 * i : 2 * i + 2])
            presents += [
                net.op("Identity", name, outputs=[f"present.{i}.{part}"])
                for name, part in zip(present, ("key", "value"), strict=True)
            ]
            x = net.add(x, self._linear(y, s.width, s.width, gain=RESIDUAL))
            y = self._rms_norm(x)
            gate = net.silu(self._linear(y, s.width, s.inner))
            y = net.op("Mul", gate, self._linear(y, s.width, s.inner))
            x = net.add(x, self._linear(y, s.inner, s.width, gain=RESIDUAL))
        logits = net.op("Identity", last(self._rms_norm(x)), outputs=["logits"])
        sizes = {"logits": (self.batch, "sequence", s.words)}
        sizes |= dict.fromkeys(presents, (self.batch, s.kv_heads, "past + sequence", s.head))
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, sizes[n]) for n in (logits, *presents)]
        return net.model(*infos)

    def _embedding(self, ids: str) -> tuple[str, Any]:
        """Rows of the words' matrix, and the function from the last state to scores of words."""
        net, s = self.net, self.shape
        if not s.tied:
            words = net.random((s.words, s.width), 1.0, "embedding")
            return net.op("Gather", words, ids, axis=0), lambda x: self._linear(x, s.width, s.words)
        weights = net.rng.standard_normal((s.words, s.width), np.float32) * np.float32(s.width**-0.5)
        grow = net.constant(s.width**0.5, "grow")
        if not self.bits:
            words = net.constant(weights, "embedding")
            rows = net.op("Gather", words, ids, axis=0)
            return net.op("Mul", rows, grow), lambda x: net.op("MatMul", x, net.transpose(words, 1, 0))
        inputs = self._stored(weights)
        flat = net.reshape(inputs[0], s.words, -1)
        # Its zero points are the middle of the range where none are given, as the product's.
        rows = net.op(
            "GatherBlockQuantized",
            flat,
            ids,
            *inputs[1:],
            domain=MS,
            gather_axis=0,
            quantize_axis=1,
            block_size=self.block,
            bits=self.bits,
        )
        return net.op("Mul", rows, grow), lambda x: self._n_bits(x, s.width, s.words, inputs)

    def _linear(self, x: str, features: int, out: int, bias: bool = False, gain: float = LINEAR_GAIN) -> str:
        """A product by weights of its own, with a bias if so."""
        net = self.net
        if not self.bits:
            y = net.op("MatMul", x, net.random((features, out), gain / features))
        else:
            y = self._n_bits(x, features, out, self._drawn_rows(out, features, (gain / features) ** 0.5))
        return net.op("Add", y, net.random((out,), 0.01, "bias")) if bias else y

    def _drawn_rows(self, rows: int, features: int, deviation: float) -> list[str]:
        """Random rows of few bits; of more than are drawn, each is one of those."""
        rng = self.net.rng
        count = min(rows, max(1, self.drawn // features)) if self.drawn else rows
        weights = rng.standard_normal((count, features), np.float32) * np.float32(deviation)
        return self._stored(weights, None if count == rows else rng.integers(0, count, rows))

    def _stored(self, weights: Array, rows: Array | None = None) -> list[str]:
        """`weights` or, of them, those `rows`."""
        packed, scales, zeros = blocks_of(weights, self.bits, self.block, self.zeros)
        if rows is not None:
            packed, scales, zeros = packed[rows], scales[rows], None if zeros is None else zeros[rows]
        net = self.net
        names = [net.constant(packed, "packed", np.uint8), net.constant(scales, "scales")]
        return names if zeros is None else [*names, net.constant(zeros, "zeros", np.uint8)]

    def _n_bits(self, x: str, features: int, out: int, stored: list[str]) -> str:
        sizes = {"K": features, "N": out, "bits": self.bits, "block_size": self.block}
        return self.net.op("MatMulNBits", x, *stored, domain=MS, accuracy_level=self.accuracy, **sizes)

    def _rms_norm(self, x: str) -> str:
        """x / sqrt(mean(x^2) + 1e-6) * scale, in elementary nodes."""
        net = self.net
        mean = net.op("ReduceMean", net.op("Pow", x, net.constant(2)), axes=[-1])
        y = net.op("Div", x, net.op("Sqrt", net.op("Add", mean, net.constant(1e-6))))
        return net.op("Mul", y, net.constant(net.rng.uniform(0.9, 1.1, self.shape.width), "scale"))

    def _lengths(self, mask: str, tables: tuple[str, str]) -> Any:
        """Attention by GroupQueryAttention, which rotates, joins and masks by lengths that follow from the mask."""
        net, s = self.net, self.shape
        total = net.op("Cast", net.op("ReduceSum", mask, net.integers(1), keepdims=0), to=TensorProto.INT32)
        last = net.op("Sub", total, net.constant(1, "one", np.int32))
        size = net.op("Gather", net.op("Shape", mask), net.constant(1, "axis", np.int64), axis=0)
        longest = net.op("Cast", size, to=TensorProto.INT32)

        def attend(q: str, k: str, v: str, past_k: str, past_v: str) -> list[str]:
            heads = {"num_heads": s.heads, "kv_num_heads": s.kv_heads, "do_rotary": 1, "rotary_interleaved": 0}
            inputs = (q, k, v, past_k, past_v, last, longest, *tables)
            return net.ops("GroupQueryAttention", 3, *inputs, domain=MS, scale=s.head**-0.5, **heads)

        return attend

    def _elementary(self, ids: str, mask: str, positions: str, past: str, tables: tuple[str, str]) -> Any:
        """Attention in ONNX's own operators: angles by position, heads repeated, a causal mask to add."""
        net, s = self.net, self.shape
        cos, sin = (net.op("Unsqueeze", net.op("Gather", t, positions, axis=0), net.integers(1)) for t in tables)
        zero, one = (net.constant(i, "index", np.int64) for i in (0, 1))
        before = net.op("Gather", net.op("Shape", past), net.constant(2, "index", np.int64), axis=0)
        length = net.op("Gather", net.op("Shape", ids), one, axis=0)
        total = net.op("Add", before, length)
        rows = net.op("Unsqueeze", net.op("Range", before, total, one), net.integers(1))
        seen = net.op("LessOrEqual", net.op("Range", zero, total, one), rows)
        shown = net.op("Cast", net.op("Unsqueeze", mask, net.integers(1, 2)), to=TensorProto.BOOL)
        seen = net.op("And", seen, shown)
        penalty = net.op("Where", seen, net.constant(0), net.constant(np.finfo(np.float32).min))

        def split(x: str, heads: int) -> str:
            return net.transpose(net.reshape(x, 0, -1, heads, s.head), 0, 2, 1, 3)

        def rotate(x: str) -> str:
            low, high = net.ops("Split", 2, x, net.integers(s.head // 2, s.head // 2), axis=-1)
            first = net.op("Sub", net.op("Mul", low, cos), net.op("Mul", high, sin))
            second = net.op("Add", net.op("Mul", high, cos), net.op("Mul", low, sin))
            return net.concat(first, second, axis=-1)

        def repeat(x: str) -> str:
            if s.heads == s.kv_heads:
                return x
            size = net.op("Concat", net.op("Shape", x), net.integers(s.heads // s.kv_heads), axis=0)
            size = net.op("Gather", size, net.integers(0, 1, 4, 2, 3), axis=0)
            y = net.op("Expand", net.op("Unsqueeze", x, net.integers(2)), size)
            return net.reshape(y, 0, s.heads, -1, s.head)

        def attend(q: str, k: str, v: str, past_k: str, past_v: str) -> list[str]:
            q, k, v = rotate(split(q, s.heads)), rotate(split(k, s.kv_heads)), split(v, s.kv_heads)
            k, v = net.concat(past_k, k, axis=2), net.concat(past_v, v, axis=2)
            scores = net.op("MatMul", q, net.transpose(repeat(k), 0, 1, 3, 2))
            scores = net.op("Mul", scores, net.constant(s.head**-0.5))
            weights = net.op("Softmax", net.op("Add", scores, penalty), axis=-1)
            y = net.transpose(net.op("MatMul", weights, repeat(v)), 0, 2, 1, 3)
            return [net.reshape(y, 0, -1, s.width), k, v]

        return attend
