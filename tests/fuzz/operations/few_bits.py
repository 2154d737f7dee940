"""Constant weights of 2, 4 or 8 bits in blocks: products of them, and rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..builder import Builder, Rejected
from ..draw import Array
from ..registry import operation

MS = "com.microsoft"

KEPT = 1 << 14
"""Elements from which on a constant keeps its few bits."""

LARGEST = 1 << 16


def columns(b: Builder, k: int) -> int:
    """Of a matrix of k rows: few, or enough that its bits are kept."""
    n = b.draw.pick([1, 3, 17, -(-KEPT // max(1, k))])
    if not k or n * k > LARGEST:
        raise Rejected("no matrix, or a large one")
    return n


def scales(b: Builder, shape: list[int], dtype: Any = "f4") -> str:
    return b.const(b.draw.array(shape, dtype, 0.001, 0.02), 0.0)


def exact_rows(b: Builder, shape: list[int]) -> str:
    """An input of integers up to 127, with one of those in every 16: rounding them to 8 bits changes nothing."""
    rows = b.draw.array(shape, "i4", -127, 127).astype("f4")
    rows[..., ::16] = 127.0
    return b.const(rows, 1.0)


@operation("few_bits", 1)
def product_of_few_bits(b: Builder) -> None:
    """MatMulNBits: zero points packed, as floats or none; groups in another order; a bias."""
    d = b.draw
    rounds = d.chance(0.2)
    if rounds:
        x = exact_rows(b, [d.pick([1, 2, 5, 17]), d.pick([16, 32, 48, 64, 80, 128])])
    else:
        x = b.tensor(
            ["f4", "f4", b.dtype if b.dtype.itemsize < 8 else "f4"],
            where=lambda a: a.ndim >= 2 and 0 < a.size <= 3000 and bool(np.isfinite(a).all()),
        )
    k, bits, block, kind = b[x].shape[-1], d.pick([2, 4, 4, 8]), d.pick([16, 32, 64, 128]), b[x].dtype
    blocks, n = -(-k // block), columns(b, k)
    inputs = [x, b.const(d.array([n, blocks, block * bits // 8], "u1", 0, 255), 0.0), scales(b, [n, blocks], kind)]
    zeros = d.pick(["none", "packed", "packed", "float"])
    if zeros == "packed":
        inputs.append(b.const(d.array([n, -(-blocks * bits // 8)], "u1", 0, 255), 0.0))
    elif zeros == "float":
        inputs.append(b.const(d.array([n, blocks], kind, 0, (1 << bits) - 1), 0.0))
    if bits == 4 and zeros != "packed" and d.chance(0.3):  # with others onnxruntime reads zero points amiss
        group = d.rng.permutation(np.arange(blocks * block) // block)
        inputs += [""] * (4 - len(inputs)) + [b.const(group.astype("i4"), 0.0)]
    if d.chance(0.3):
        inputs += [""] * (5 - len(inputs)) + [b.const(d.array([n], kind), 0.0)]
    level = 4 if rounds else d.pick([None, 0, 1])
    b.emit("MatMulNBits", inputs, domain=MS, K=k, N=n, bits=bits, block_size=block, accuracy_level=level)


def small_integers(b: Builder, kind: str, shape: list[int]) -> Array:
    signed = kind.startswith("int")
    bits = int(kind.removeprefix("u").removeprefix("int"))
    low = -(1 << (bits - 1)) if signed else 0
    numbers = b.draw.array(shape, "i4", low, low + (1 << bits) - 1)
    return numbers.astype(getattr(ml_dtypes, kind) if bits < 8 else kind)


def blocked(b: Builder, shape: list[int], axis: int, block: int, dtype: Any) -> str:
    """DequantizeLinear of a constant in blocks along `axis`, or with one scale for each index of the other axis."""
    d = b.draw
    kind = d.pick(["int4", "uint4", "int8", "uint8"])
    if d.chance(0.7):
        many = [-(-n // block) if i == axis else n for i, n in enumerate(shape)]
        attrs = {"axis": axis, "block_size": block}
    else:
        many, attrs = [shape[1 - axis]], {"axis": 1 - axis}
    inputs = [b.const(small_integers(b, kind, shape), 0.0), scales(b, many, dtype)]
    if d.chance(0.6):
        inputs.append(b.const(small_integers(b, kind, many), 0.0))
    return b.emit("DequantizeLinear", inputs, **attrs)


@operation("few_bits", 1)
def product_of_blocks(b: Builder) -> None:
    """DequantizeLinear in front of MatMul or Gemm, with a Transpose between in some."""
    d = b.draw
    if b.opset < 21:
        raise Rejected("blocks")
    gemm = d.chance(0.3)
    kinds = ["f4", b.dtype if b.dtype.itemsize < 8 else "f4"]
    rank = 2 if gemm else None
    x = b.tensor(kinds, rank, lambda a: a.ndim >= 1 and 0 < a.size <= 3000 and bool(np.isfinite(a).all()))
    k, block = b[x].shape[-1], d.pick([2, 8, 16, 32])
    n, stored = columns(b, k), d.chance(0.5)
    axis = d.pick([int(stored), int(stored), 1 - int(stored)])
    w = blocked(b, [n, k] if stored else [k, n], axis, block, b[x].dtype)
    if gemm:
        bias = [b.const(d.array([n], b[x].dtype), 0.0)] if d.chance(0.5) else []
        b.emit("Gemm", [x, w, *bias], transB=int(stored), alpha=d.pick([None, 0.5]))
        return
    w = b.emit("Transpose", [w], perm=[1, 0]) if stored else w
    b.emit("MatMul", [x, w])


def places(b: Builder, size: int) -> str:
    d = b.draw
    least = -size if d.chance(0.3) else 0
    return b.operand(d.shape(d.between(0, 2), most=60), d.pick(["i4", "i8"]), least, size - 1)


@operation("few_bits", 0.7)
def rows_of_blocks(b: Builder) -> None:
    """GatherBlockQuantized, or Gather of a DequantizeLinear."""
    d = b.draw
    rows, width, block = d.pick([5, 33, 260]), d.pick([8, 16, 40, 64]), d.pick([16, 32])
    kind = b.dtype if b.dtype.itemsize < 8 else np.dtype("f4")
    if b.opset >= 21 and d.chance(0.5):
        table = blocked(b, [rows, width], d.between(0, 1), d.pick([2, block]), kind)
        axis = d.between(0, 1)
        b.emit("Gather", [table, places(b, [rows, width][axis])], axis=axis)
        return
    blocks = -(-width // block)
    if d.chance(0.5):
        bits = d.pick([2, 4, 8])
        table = b.const(d.array([rows, width * bits // 8], "u1", 0, 255), 0.0)
        zero = d.array([rows, -(-blocks * bits // 8)], "u1", 0, 255)
        shape, axes = [rows, blocks], {"gather_axis": 0, "quantize_axis": 1, "bits": bits}
    else:
        kind4, along, axis = d.pick(["int4", "uint4"]), d.between(0, 1), d.between(0, 1)
        table = b.const(small_integers(b, kind4, [rows, width]), 0.0)
        shape = [-(-n // block) if i == along else n for i, n in enumerate((rows, width))]
        zero, axes = small_integers(b, kind4, shape), {"gather_axis": axis, "quantize_axis": along}
    inputs = [table, places(b, width if axes["gather_axis"] else rows), scales(b, shape, kind)]
    if d.chance(0.6):
        inputs.append(b.const(zero, 0.0))
    b.emit("GatherBlockQuantized", inputs, domain=MS, block_size=block, **axes)


@operation("few_bits", 0.3)
def product_of_numbered_values(b: Builder) -> None:
    """MatMulBnb4."""
    d = b.draw
    x = b.tensor(["f4"], where=lambda a: a.ndim >= 2 and 0 < a.size <= 3000 and bool(np.isfinite(a).all()))
    k, block = b[x].shape[-1], d.pick([16, 32, 64])
    n = columns(b, k)
    codes = b.const(d.array([-(-n * k // 2)], "u1", 0, 255), 0.0)
    largest = b.const(d.array([-(-n * k // block)], "f4", 0.01, 0.1), 0.0)
    kind = d.between(0, 1)
    b.emit("MatMulBnb4", [x, codes, largest], domain=MS, K=k, N=n, block_size=block, quant_type=kind)
