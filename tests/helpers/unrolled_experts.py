"""Mixtures of experts as exporters unroll them: a loop over experts that finds each one's tokens by NonZero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import onnx
from onnx import TensorProto

from .decoders import Decoder

WIDTH, INNER, SLOTS = 32, 16, 2


class Unrolled(Decoder):
    """One layer: x[B,S,WIDTH] to y of the same shape.

    style: "trace" as torch.onnx's older exporter writes it, "dynamo" as the newer one, "assign" for x[at] += rows.
    bits: of the matrices of experts, 0 for floats.
    """

    def __init__(self, style: str, experts: int = 4, bits: int = 0, distinct: bool = True, seed: int = 3) -> None:
        super().__init__(seed=seed)
        self.opset = 18
        self.style, self.experts, self.bits, self.distinct = style, experts, bits, distinct

    def build(self, networks: Sequence[int] | None = None, activations: Sequence[str] = ()) -> bytes:
        """networks: the experts that have a network. activations: one for each, by default Sigmoid."""
        x = self.input("x", TensorProto.FLOAT, ("batch", "steps", WIDTH))
        rows = self.op("Reshape", x, self.ints(-1, WIDTH))
        scores = self.op("Softmax", self.op("MatMul", rows, self.matrix(WIDTH, self.experts)), axis=1)
        if self.distinct:
            weights, picks = self.op("TopK", scores, self.ints(SLOTS), axis=-1, outputs=2)
        else:  # the same expert in both slots
            weights, best = self.op("TopK", scores, self.ints(1), axis=-1, outputs=2)
            weights, picks = (self.op("Concat", v, v, axis=1) for v in (weights, best))
        total = self.op("ConstantOfShape", self.op("Shape", rows))
        hot = self.one_hot(picks)
        for e in networks if networks is not None else range(self.experts):
            found = self.op("NonZero", self.mask(picks, hot, e))
            slot, token = self.columns(found)
            part = self.network(self.tokens(rows, token), (*activations, *("Sigmoid",) * self.experts)[e])
            part = self.op("Mul", part, self.routing(weights, token, slot))
            total = self.add(total, token, part)
        self.output(self.op("Reshape", total, self.op("Shape", x)), "y", ("batch", "steps", WIDTH))
        return self.model("experts")

    def matrix(self, rows: int, columns: int) -> str:
        return self.const(self.rng.standard_normal((rows, columns)) * rows**-0.5)

    def one_hot(self, picks: str) -> str:
        if self.style == "trace":
            hot = self.op("OneHot", picks, self.const(self.experts, np.int64), self.ints(0, 1), axis=-1)
        else:
            wide = self.op("Equal", self.op("Unsqueeze", picks, self.ints(-1)), self.ints(*range(self.experts)))
            hot = self.op("Cast", wide, to=TensorProto.INT64)
        return self.op("Transpose", hot, perm=[2, 1, 0])

    def mask(self, picks: str, hot: str, expert: int) -> str:
        if self.style == "assign":
            return self.op("Equal", picks, self.const(expert, np.int64))
        row = self.op("Gather", hot, self.const(expert, np.int64), axis=0)
        return self.op("Cast", row, to=TensorProto.BOOL) if self.style == "trace" else row

    def columns(self, found: str) -> tuple[str, str]:
        """Slot and token [n] of each row."""
        wide = self.op("Transpose", found, perm=[1, 0])
        if self.style == "trace":
            parts = self.op("Split", wide, self.ints(1, 1), axis=1, outputs=2)
        else:
            parts = [self.op("Slice", wide, self.ints(i), self.ints(i + 1), self.ints(1)) for i in (0, 1)]
        slot, token = (self.op("Squeeze", p, self.ints(1)) for p in parts)
        return (token, slot) if self.style == "assign" else (slot, token)

    def tokens(self, rows: str, token: str) -> str:
        if self.style == "trace":
            wide = self.op("Gather", self.op("Unsqueeze", rows, self.ints(0)), token, axis=1)
            return self.op("Reshape", wide, self.ints(-1, WIDTH))
        if self.style == "assign":
            return self.op("Gather", rows, token)
        lead = self.op("Transpose", self.op("Unsqueeze", rows, self.ints(0)), perm=[1, 0, 2])
        found = self.op("GatherND", lead, self.op("Unsqueeze", token, self.ints(-1)))
        return self.op("Reshape", self.op("Transpose", found, perm=[1, 0, 2]), self.ints(-1, WIDTH))

    def network(self, x: str, activation: str) -> str:
        gate, up = self.product(x, WIDTH, INNER), self.product(x, WIDTH, INNER)
        return self.product(self.op("Mul", self.op(activation, gate), up), INNER, WIDTH)

    def product(self, x: str, columns: int, rows: int) -> str:
        if self.bits:
            codes = self.rng.integers(0, 255, (rows, 1, columns * self.bits // 8)).astype(np.uint8)
            scales = (self.rng.random((rows, 1)) + 0.5) / (1 << (self.bits - 1)) / columns**0.5
            given = [self.const(codes, np.uint8), self.const(scales)]
            attrs = {"K": columns, "N": rows, "bits": self.bits, "block_size": columns}
            return self.op("MatMulNBits", x, *given, domain="com.microsoft", **attrs)
        if self.style == "dynamo":
            return self.op("Gemm", x, self.matrix(rows, columns), self.const(self.rng.standard_normal(rows)), transB=1)
        y = self.op("MatMul", x, self.matrix(columns, rows))
        return self.op("Add", y, self.const(self.rng.standard_normal(rows))) if self.style == "assign" else y

    def routing(self, weights: str, token: str, slot: str) -> str:
        if self.style == "trace":
            flat = self.op("Reshape", weights, self.ints(-1, 1))
            width = self.op("Gather", self.op("Shape", weights), self.ints(1))
            pair = self.op("Add", slot, self.op("Mul", token, width))
            return self.op("Gather", flat, pair)
        at = self.op("Concat", *(self.op("Unsqueeze", v, self.ints(-1)) for v in (token, slot)), axis=-1)
        return self.op("GatherND", self.op("Unsqueeze", weights, self.ints(2)), at)

    def add(self, total: str, token: str, part: str) -> str:
        at = self.op("Unsqueeze", token, self.ints(-1))
        if self.style == "dynamo":
            return self.op("ScatterND", total, at, part, reduction="add")
        if self.style == "assign":
            return self.op("ScatterND", total, at, self.op("Add", self.op("Gather", total, token), part))
        wide = self.op("Expand", at, self.op("Shape", part))
        zeros = self.op("ConstantOfShape", self.op("Shape", total))
        return self.op("Add", total, self.op("ScatterElements", zeros, wide, part, axis=0))


def sorted_experts(experts: int = 4, seed: int = 5) -> bytes:
    """Rows sorted by expert and split by how many each has, as GraniteMoe's layers are written."""
    net = Unrolled("sorted", experts, seed=seed)
    x = net.input("x", TensorProto.FLOAT, ("rows", WIDTH))
    sizes = net.input("sizes", TensorProto.INT64, (experts,))
    parts = net.op("Split", x, sizes, axis=0, outputs=experts)
    matrices = net.const(net.rng.standard_normal((experts, WIDTH, INNER)))
    picked = [net.op("Gather", matrices, net.const(e, np.int64), axis=0) for e in range(experts)]
    products = [net.op("MatMul", p, w) for p, w in zip(parts, picked, strict=True)]
    net.output(net.op("Concat", *products, axis=0), "y", ("rows", INNER))
    return net.model("sorted")


def kinds(model: Any) -> list[str]:
    """The operators of a graph or model, in order."""
    graph = onnx.load_model_from_string(model).graph.node if isinstance(model, bytes) else model.nodes
    return [n.op_type for n in graph]
