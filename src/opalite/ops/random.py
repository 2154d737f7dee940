"""Random: numbers from a counter-based generator, equal on all devices for one seed.

The generator is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): element i takes
word i % 4 of the block with counter i / 4 and the seed as key, so that elements can be computed in any order.
"""

from __future__ import annotations

import math

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import Shape, TensorType
from .operator import Array, Arrays, Op, Types, frozen_op, make_type, need, present, tensor

KINDS = ("uniform", "normal", "bernoulli")

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)


def philox(seed: int, count: int) -> Array:
    """The first `count` words, uint32, of the stream of `seed` (64 bits)."""
    blocks = -(-count // 4)
    counter = np.arange(blocks, dtype=np.uint64)
    words = [counter & _LOW, counter >> _WORD, np.zeros_like(counter), np.zeros_like(counter)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    for _ in range(10):
        a, b = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [(b >> _WORD) ^ words[1] ^ key[0], b & _LOW, (a >> _WORD) ^ words[3] ^ key[1], a & _LOW]
        key = [(k + step) & _LOW for k, step in zip(key, _KEY_STEPS, strict=True)]
    return np.stack(words, 1).ravel()[:count].astype(np.uint32)


def uniform_bits(dtype: DType) -> int:
    """Random bits in a uniform number of type `dtype`."""
    return 32 if dtype is DType.FLOAT64 else 24


def _unit(words: Array, bits: int) -> Array:
    """float64 numbers in [0, 1) from the upper bits of each word."""
    units: Array = (words >> np.uint32(32 - bits)).astype(np.float64) * 2.0**-bits
    return units


@frozen_op
class Random(Op):
    """Random numbers that depend only on the seed and the position.

    Attributes: kind ("uniform" in [low, high), "normal" with mean and scale (standard deviation), "bernoulli": one with
    the probability in input x[...], else zero), shape (bernoulli: x's), seed (int), dtype (of the output). Normal
    numbers are Box-Muller pairs: words 2i and 2i+1 give the radius and the angle of elements 2i and 2i+1.
    """

    kind: str
    shape: Shape
    seed: int
    dtype: DType
    low: float
    high: float
    mean: float
    scale: float

    random = True
    flops = 50.0

    def check_shape(self, ins: Types) -> None:
        kind, dtype = self.kind, self.dtype
        need(kind in KINDS, f"kind must be one of {', '.join(KINDS)}, got '{kind}'")
        need(all(d >= 0 for d in self.shape), f"shape must not be negative, got {self.shape}")
        if kind != "bernoulli":
            need(dtype.is_float, f"{kind} numbers are floats, got {dtype}")
            return
        x = tensor(ins, 0, "probabilities")
        need(x.dtype.is_float, f"probabilities must be floats, got {x}")
        need(self.shape == x.shape, f"shape must be that of the probabilities {x}, got {self.shape}")
        need(dtype.is_float or dtype.is_int or dtype is DType.BOOL, f"the output must hold numbers, got {dtype}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [make_type(self.dtype, self.shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        shape, dtype = self.shape, self.dtype
        count = math.prod(shape)
        if self.kind == "bernoulli":
            (x,) = present(arrays, 1)
            drawn = _unit(philox(self.seed, count), uniform_bits(DType.of(x)))
            return [(drawn.reshape(shape) < x.astype(np.float64)).astype(dtype.np)]
        real = np.float64 if dtype is DType.FLOAT64 else np.float32
        bits = uniform_bits(dtype)
        if self.kind == "uniform":
            low, span = float(real(self.low)), float(real(self.high - self.low))
            y = low + _unit(philox(self.seed, count), bits) * span
        else:
            words = philox(self.seed, count + count % 2).reshape(-1, 2)
            radius = np.sqrt(-2 * np.log(_unit(words[:, 0], bits) + 2.0**-bits))
            angle = 2 * math.pi * _unit(words[:, 1], bits)
            pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
            y = float(real(self.mean)) + pairs.ravel()[:count] * float(real(self.scale))
        return [y.astype(real).reshape(shape).astype(dtype.np)]
