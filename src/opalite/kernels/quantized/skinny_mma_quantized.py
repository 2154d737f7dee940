"""QuantizedMatMul of few half rows on matrix units (skinny GEMM): bound by reading the packed weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...cost.cost_tables import MatrixUnits, Unpacking
from ...ir.device.device_family import PTX_MMA
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.growable_tensor import FEW
from ...ir.symbols import hint_of, may_have_remainder
from ...ops.operator import Cost
from ...ops.quantized_matmul import QuantizedMatMul
from ...ops.row_norm_matmul import RowNormQuantizedMatMul
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import STORAGE, Launch, ceil_div
from ..matmul.matmul_problem import MatmulProblem
from ..matmul.skinny_mma import normal_args, normalize_seconds, rows_of
from .pack_low_bit import STREAMED, packed_args, shared_zero
from .quantized_matmul_cpu import QuantizedMatmulKernel

MOST_ROWS = FEW

_WAVE = 32
_COLUMNS = 16  # rows that the matrix units take at once
_HELD = 96  # words of quads, scales and zero points per work-item that leave registers for accumulators
_ON_ITS_WAY = 4  # quads in flight that suffice; more take registers, and bandwidth from earlier steps
_LARGEST_ZERO = 512  # halves represent it minus any packed number exactly
_UNIT = 2.0**-9  # 1.0 as a half


@register
class QuantizedSkinnyMma(QuantizedMatmulKernel):
    """PARTS warps per 16 columns; each work-item keeps UNROLL quads of 16 bytes in flight."""

    rank = -1
    space = {"PARTS": (8, 4), "UNROLL": (8, 6, 4, 2, 1), "MR": (1, 2, 4, 8, 16)}
    on_gpu = True

    def refuse(self, p: MatmulProblem) -> str | None:
        node, op, rows = p.node, p.node.as_(QuantizedMatMul), p.sizes.m
        if PTX_MMA not in p.device.quirks:
            return "the device has no matrix units"
        if node.y.type.storage is not DType.FLOAT16 or node.x.type.storage is not DType.FLOAT16:
            return f"it multiplies halves, here {node.y.type.storage} is stored"
        if rows > MOST_ROWS:  # a guard: a plan for few rows serves no prompt
            return f"a has {rows!r} rows; this kernel is for at most {MOST_ROWS}"
        if op.table:
            return "numbers that stand for values of a table are no halves"
        if op.bits == 8 and _span(p) % 2:
            return f"blocks of {op.block} numbers end inside the 8 that are multiplied at once"
        if min(p.device.max_work_group_size, p.device.max_work_item_sizes[0]) < min(self.space["PARTS"]) * _WAVE:
            return f"the device's work-groups are smaller than {min(self.space['PARTS']) * _WAVE} work-items"
        return super().refuse(p) or _zero_refusal(p) or self.no_legal_point(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        items, rows, at_once = params["PARTS"] * _WAVE, params["MR"], params["UNROLL"]
        if items > min(p.device.max_work_group_size, p.device.max_work_item_sizes[0]):
            return f"the device runs fewer than {items} work-items in a group"
        if not rows_of(p) <= 2 * rows <= 2 * rows_of(p):  # correct but slower
            return "the group has more rows than the product, or too few of them"
        if at_once > 1 and at_once * quad_registers(p) > _HELD:
            return f"{at_once} quads with their scales do not fit the registers"
        if at_once // _split(p, params) >= 2 * _steps(p, params):
            return "a work-item has fewer quads than it would ask for"
        return None if chunks_in_local_memory(p, params) else "the rows do not fit the local memory"

    def defaults(self, p: MatmulProblem) -> Params:
        """The most rows at once, and as many quads in flight as pay without passing a column's end."""

        def order(point: Params) -> tuple[Any, ...]:
            steps, turn = _steps(p, point), point["UNROLL"] // _split(p, point)
            wasted = ceil_div(steps, turn) * turn - steps
            return -point["MR"], -point["PARTS"], 4 * wasted > steps, -min(point["UNROLL"], _ON_ITS_WAY), wasted

        return min(self.points(p), key=order)

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        """Unpacking costs as much as multiplying some rows; the matrix units take two rows at once."""
        m = max(1, p.sizes.m)
        operations = cost.flops / m * (ceil_div(m, 2) + Unpacking.of(p.device).in_registers)
        arithmetic = operations / (p.device.peak_flops * self.share(p.device))
        moved = cost.bytes / p.device.bandwidth * MatrixUnits.of(p.device).streamed
        seconds = max(arithmetic, moved) + p.device.launch_s
        return seconds * 20 if p.device.is_cpu else seconds

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, op, s = p.node, p.node.as_(QuantizedMatMul), p.sizes
        epilogue = rows_epilogue(node, p.device)
        args, own = packed_args(node.input(1), node.input(2), node.get(3), op.bits, op.trans_b, STREAMED)
        del args["middle"], own["DEEP"]
        sixteens = _sixteens(p, params)
        args |= {"a": node.x, "y": node.y, "M": s.m, "N": s.n, "K": s.k, **epilogue.args}
        args |= {"blocks": ceil_div(s.k, op.block), "sixteens": sixteens}
        args["zero"] = _pair_of(-(shared_zero(node.input(1), node.get(3), op.bits) or 0.0) * _UNIT)
        own |= {"STORAGE": STORAGE[node.y.type.storage], "PACK": 4, "ALIGNED": int(not may_have_remainder(s.k, 4))}
        own |= {**params, "SPLIT": _split(p, params), "ROUNDS": chunks_in_local_memory(p, params), "SPAN": _span(p)}
        group = params["PARTS"] * _WAVE
        grid = (ceil_div(ceil_div(s.n, _COLUMNS), sixteens) * group, ceil_div(s.m, params["MR"]))
        return [Launch("quantized_few", args, grid, (group, 1), own, epilogue.prelude)]


def _pair_of(value: float) -> np.uint32:
    """Two halves, each of them `value`."""
    return np.uint32(int(np.float16(value).view(np.uint16)) * 0x10001)


def _zero_refusal(p: MatmulProblem) -> str | None:
    """The reason why a number minus its zero point is not an exact half, or None."""
    zero, bits = p.node.get(3), p.node.as_(QuantizedMatMul).bits
    shared = shared_zero(p.node.input(1), zero, bits)
    if shared is None:
        assert zero is not None
        return "zero points of blocks are floats" if zero.dtype.is_float else None
    if not shared.is_integer() or abs(shared) > _LARGEST_ZERO:
        return f"the zero point {shared} is a fraction, or more than {_LARGEST_ZERO}"
    return None


def _has_zeros(p: MatmulProblem) -> bool:
    zero = p.node.get(3)
    return zero is not None and zero.type.count != 1


def _span(p: MatmulProblem) -> int:
    """Words per quantisation block; 0 if a column is one block."""
    op = p.node.as_(QuantizedMatMul)
    return op.block * op.bits // 32 if op.block < p.sizes.k else 0


def _scales(p: MatmulProblem) -> int:
    """Scales per quad, as in skinny_mma_quantized.cl."""
    span = _span(p)
    return 1 if span % 4 == 0 else 2 if span % 2 == 0 else 4


def quad_registers(p: MatmulProblem) -> int:
    """Registers of a quad with its scales and zero points."""
    scales = _scales(p)
    return 4 + 2 * scales + (scales if _has_zeros(p) else 0)


def _quad(p: MatmulProblem) -> int:
    """Numbers per quad."""
    return int(128 // p.node.as_(QuantizedMatMul).bits)


def _steps(p: MatmulProblem, params: Params) -> int:
    """Quads per work-item in 16 columns."""
    return max(1, ceil_div(ceil_div(p.sizes.k, _quad(p)), 2 * params["PARTS"]))


def _sixteens(p: MatmulProblem, params: Params) -> int:
    """Groups of 16 columns per work-group: one work-group per compute unit overlaps loads and reductions."""
    groups = ceil_div(p.sizes.n, _COLUMNS) * ceil_div(hint_of(p.sizes.m), params["MR"])
    return max(1, ceil_div(groups, p.device.compute_units))


def _split(p: MatmulProblem, params: Params) -> int:
    """Groups of 16 columns in flight at once, if those of one are few."""
    most = params["UNROLL"] // _steps(p, params) if params["MR"] <= 4 else 1
    fits = (n for n in (8, 4, 2) if n <= min(most, _sixteens(p, params)) and params["UNROLL"] % n == 0)
    return next(fits, 1)


def chunk_terms(p: MatmulProblem, params: Params) -> int:
    """Terms of a row covered by the quads that a work-group has in flight."""
    return int(params["UNROLL"] // _split(p, params) * 2 * params["PARTS"] * _quad(p))


def chunks_per_row(p: MatmulProblem, params: Params) -> int:
    """Chunks per row."""
    return max(1, ceil_div(p.sizes.k, chunk_terms(p, params)))


def chunks_in_local_memory(p: MatmulProblem, params: Params) -> int:
    """Chunks of the rows held in local memory at once: all, or an even part; 0 if none fits."""
    split, rows, parts = _split(p, params), params["MR"], params["PARTS"]
    each = 2 * rows * chunk_terms(p, params)
    sums = (1 if rows > 4 else 2) * split * rows * parts * _COLUMNS * 4
    most = (p.device.local_mem // 8 * 7 - sums - 4 * _quad(p)) // each
    rounds = chunks_per_row(p, params)
    return ceil_div(rounds, ceil_div(rounds, most)) if most > 0 else 0


_VECTOR = 8  # halves of a row per load
_WORDS = 4  # of such a vector
_HELD_BESIDE_ROWS = 112  # words of quads, rows, scale and bias per work-item that leave registers for accumulators


@register
class QuantizedNormSkinnyMma(QuantizedSkinnyMma):
    """QuantizedSkinnyMma that normalises the rows while it copies them to local memory: each group all rows."""

    op = "RowNormQuantizedMatMul"

    def refuse(self, p: MatmulProblem) -> str | None:
        for what, v in zip(("row_scale", "row_bias"), _parameters(p), strict=True):
            if v is not None and not v.is_const:
                return f"{what} {v.type} is not constant"
        if p.node.as_(RowNormQuantizedMatMul).bits == 2:
            return "pairs of numbers of 2 bits are of two vectors of a row"
        if p.sizes.k % _VECTOR:
            return f"{p.sizes.k} terms are no multiple of {_VECTOR}"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if why := super().illegal(p, params):
            return why
        rows, rounds = params["MR"], chunks_per_row(p, params)
        if rows < rows_of(p):
            return "groups of fewer rows would read the matrix several times"
        if chunks_in_local_memory(p, params) < rounds:
            return f"{rows} rows of {p.sizes.k} terms do not fit the local memory as a whole"
        vectors = ceil_div(rounds * chunk_terms(p, params), params["PARTS"] * 32 * _VECTOR)
        given = sum(v is not None for v in _parameters(p))
        if params["UNROLL"] * quad_registers(p) + vectors * (rows + given) * _WORDS > _HELD_BESIDE_ROWS:
            return f"a work-item would keep {vectors} vectors of each of {rows} rows beside {params['UNROLL']} quads"
        return None

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        """The product's time plus that of normalising all rows in every work-group."""
        return super().seconds(p, cost) + normalize_seconds(p)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        (launch,) = super().launch(p, params)
        op, (scale, bias) = p.node.as_(RowNormQuantizedMatMul), _parameters(p)
        args, defines = normal_args(op.kind, op.epsilon, scale, bias, p.sizes.k)
        defines["VECTOR"] = _VECTOR
        return [replace(launch, args={**launch.args, **args}, defines={**launch.defines, **defines})]


def _parameters(p: MatmulProblem) -> tuple[Value | None, Value | None]:
    return p.node.get(4), p.node.get(5)
