"""Packs low-bit matrices for kernels (unpack_low_bit.cl): column panels of 32-bit words, scales, zero points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...ir.constants.lazy_array import LazyArray, page_zeros, read_slices
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ..kernel import Binding, flat_binding
from ..launch import Arg, Args, Array, Defines, Weight, ceil_div

VECTORS = 4
"""Vectors of a panel on CPUs: with fewer, kernels wait for memory; with more, sums leave the registers."""


class PanelLayout(NamedTuple):
    """Memory order of panels: `deep` consecutive words of a column together, for each of `width` columns."""

    width: int
    deep: int


STREAMED = PanelLayout(32, 4)
"""For GPUs: a work-item reads 16 bytes of one column, its neighbours those of the next."""


def panels_of(device: DeviceInfo) -> PanelLayout:
    """The panel layout of a device; all its kernels use it, so that they share one copy of a matrix."""
    return PanelLayout(VECTORS * device.pack, 1) if device.is_cpu else STREAMED


def panel_width(device: DeviceInfo) -> int:
    """Columns of a panel."""
    return panels_of(device).width


def packing_refusal(b: Value, scale: Value, zero: Value | None, bits: int, block: int, columns: int) -> str | None:
    """The reason why kernels cannot pack the matrix, or None."""
    if not b.is_const or not scale.is_const or not (zero is None or zero.is_const):
        return "the integers, their scales and zero points must be constants"
    if block * bits % 32 and block < columns:
        return f"blocks of {block} numbers of {bits} bits do not begin at words of 32"
    return None


def shared_zero(b: Value, zero: Value | None, bits: int) -> float | None:
    """The single zero point in packed form, or None if there are several."""
    middle = float(_offset(b, bits))
    if zero is None:
        return middle
    if zero.type.count != 1:
        return None
    assert zero.data is not None
    return middle + float(zero.data.reshape(()))


def _offset(b: Value, bits: int) -> int:
    """The offset that makes the integers non-negative, as packed words need."""
    return 1 << (bits - 1) if b.dtype is DType.INT8 else 0


def packed_args(
    b: Value, scale: Value, zero: Value | None, bits: int, transposed: bool, panels: PanelLayout
) -> tuple[Args, Defines]:
    """(arguments, defines) of a packed matrix with a row of `scale` per column; transposed: stored as [N, K]."""
    offset = _offset(b, bits)
    width, deep = panels
    form = f"words{bits}x{width}{f'x{deep}' if deep > 1 else ''}{'t' if transposed else ''}{offset}"
    n, k = b.shape if transposed else b.shape[::-1]
    shape = ceil_div(n, width), ceil_div(k, 32 // bits * deep), width, deep
    made = np.dtype(np.uint32), shape if deep > 1 else shape[:-1]
    args: Args = {"b": Weight(b, form, pack_words(bits, panels, transposed, offset), by_slices=True, packed_type=made)}
    halves = scale.dtype is DType.FLOAT16
    args["scale"] = Weight(scale, f"panels{width}", to_panels(width, scale.dtype.np), by_slices=True)
    kind, middle = 0, shared_zero(b, zero, bits)
    if middle is None:
        assert zero is not None
        middle = float(offset)
        kind = 2 if zero.dtype.is_float else 1
        dtype = np.dtype(np.float32 if kind == 2 else np.uint8)
        args["zeros"] = Weight(zero, f"panels{width}+{offset}", to_panels(width, dtype, offset))
    args["middle"] = 1.0 + middle / (1 << bits)
    own: Defines = {"BITS": bits, "ZEROS": kind, "HALF_SCALES": int(halves)}
    return args, own if deep == 1 else own | {"DEEP": deep}


def take_zero(args: Args, bits: int) -> float:
    """The zero point that all numbers share, or the offset of their own; takes "middle" out of `args`."""
    middle = args.pop("middle")
    assert isinstance(middle, float)
    return (middle - 1.0) * (1 << bits)


def texel_defines(b: Arg, device: DeviceInfo) -> Defines:
    """The define by which kernels read words `b` of `packed_args` as texels (include/texel_buffer.cl), if they may."""
    assert isinstance(b, Weight)
    assert b.packed_type is not None
    return {"TEXELS": 1} if device.reads_texels(math.prod(b.packed_type[1]) // STREAMED.deep) else {}


def codebook_defines(device: DeviceInfo, table: tuple[float, ...]) -> tuple[Defines, str]:
    """(defines, prelude) of 4-bit numbers that are indices into the codebook `table`, if there is one."""
    if not table:
        return {}, ""
    # Devices with vector byte dot products have AVX-512 or AVX2, and therefore vpermps.
    defines = {"TABLE": 1, "PERMUTE": int(device.is_cpu and device.assembly and bool(device.byte_dots))}
    return defines, f"#define TABLE_VALUES {', '.join(f'{v!r}f' for v in table)}\n"


def pack_words(bits: int, panels: PanelLayout, transposed: bool, offset: int) -> Callable[[Array | LazyArray], Array]:
    """A function from integers [K, N] ([N, K] if `transposed`) plus `offset` to words [panels, groups, width, deep].

    With deep = 1 the last axis is absent: [panels, groups, width].
    """
    width, deep = panels
    per = 32 // bits * deep

    def fn(b: Array | LazyArray) -> Array:
        n, k = b.shape if transposed else b.shape[::-1]
        out = page_zeros((ceil_div(n, width), ceil_div(k, per), width, deep), np.dtype(np.uint32))
        for part, held in read_slices(b, width if transposed else per):
            rows = held if transposed else held.T  # [columns, k]
            words = _words(rows, bits, offset)
            if transposed:
                _fill(out[part.start // width : ceil_div(part.stop, width)], words)
            else:
                _fill(out[:, part.start // per : ceil_div(part.stop, per)], words)
        return out if deep > 1 else out[..., 0]

    return fn


def _words(rows: Array, bits: int, offset: int) -> Array:
    """[columns, k] as uint32 [columns, ceil(k / PER)], the first number in the low bits."""
    columns, k = rows.shape
    each = 8 // bits
    count = ceil_div(k, 4 * each)
    numbers = np.zeros((columns, count * 4 * each), np.uint8)
    numbers[:, :k] = rows.view(np.uint8) if rows.flags.c_contiguous else np.ascontiguousarray(rows).view(np.uint8)
    if offset:
        numbers[:, :k] += np.uint8(offset)  # unsigned arithmetic wraps around as signed arithmetic does
    packed = numbers[:, ::each].copy()
    for i in range(1, each):
        packed |= numbers[:, i::each] << np.uint8(bits * i)
    return packed.view("<u4").astype(np.uint32, copy=False)


def _fill(out: Array, words: Array) -> None:
    """Writes words [columns, words] to panels [panels, words / deep, width, deep]."""
    groups, width, deep = out.shape[1:]
    if missing := groups * deep - words.shape[1]:
        words = np.pad(words, ((0, 0), (0, missing)))
    whole, left = divmod(words.shape[0], width)
    out[:whole] = words[: whole * width].reshape(whole, width, groups, deep).swapaxes(1, 2)
    if left:
        out[whole, :, :left] = words[whole * width :].reshape(left, groups, deep).swapaxes(0, 1)


def to_panels(width: int, dtype: np.dtype[Any], offset: int = 0) -> Callable[[Array | LazyArray], Array]:
    """A function from scales or zero points [N, blocks] plus `offset` to [panels, blocks, width], zero-padded."""

    def fn(parts: Array | LazyArray) -> Array:
        n, blocks = parts.shape
        out = page_zeros((ceil_div(n, width), blocks, width), dtype)
        for part, found in read_slices(parts, width):
            wide = found.astype(np.int16) + offset if offset and found.dtype.kind in "iu" else found + offset
            part_out = out[part.start // width : ceil_div(part.stop, width), ..., None]
            _fill(part_out, wide.astype(dtype, copy=False))
        return out

    return fn


def packed_binding(node: Node, first: int) -> Binding:
    """Row-major buffers for all values except the matrix (input `first`) and inputs 2 onward, which are packed."""
    flat = flat_binding(node)
    taken = {first, *range(2, node.op.arity)}
    return Binding(tuple(None if i in taken else layout for i, layout in enumerate(flat.inputs)), flat.outputs)
