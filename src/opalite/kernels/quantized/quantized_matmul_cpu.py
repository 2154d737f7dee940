"""QuantizedMatMul on CPUs: dequantises in registers for few rows, into the L1 cache for many."""

from __future__ import annotations

from typing import Any

from ...cost.cost_tables import Unpacking
from ...ir.device.device_info import DeviceInfo
from ...ir.symbols import hint_of, symbolic_max
from ...ops.operator import Cost
from ...ops.quantized_matmul import QuantizedMatMul
from ..codegen.epilogue import epilogue_refusal, rows_epilogue
from ..kernel import Bindings, Kernel, Params, register
from ..launch import STORAGE, Arg, Defines, Launch, ceil_div
from ..matmul.matmul_problem import MatmulProblem
from .pack_low_bit import (
    VECTORS,
    codebook_defines,
    packed_args,
    packed_binding,
    packing_refusal,
    panel_width,
    panels_of,
)

GROUP = (1, 1, 1)
TILES = 24  # tiles of a work-item of panel.cl, whose sums are kept
ITEMS_A_CORE = 8  # work-items per core, for load balance


class QuantizedMatmulKernel(Kernel):
    """Base class of QuantizedMatMul kernels: refusals, bindings and launches."""

    op = "QuantizedMatMul"
    problem = MatmulProblem
    on_gpu: bool = False
    rounds: bool = False
    """Whether it rounds rows to 8 bits."""

    def refuse(self, p: MatmulProblem) -> str | None:
        if not p.device.is_cpu and not self.on_gpu:
            return "register tiles of one work-item are for CPUs"
        node, op = p.node, p.node.as_(QuantizedMatMul)
        if symbolic_max(v.type.count for v in (node.x, node.input(1), node.y)) >= 1 << 31:
            return "a tensor is beyond 32-bit indices"
        if why := activation_quantization_refusal(p) if self.rounds else exact_refusal(p):
            return why
        why = packing_refusal(node.input(1), node.input(2), node.get(3), op.bits, op.block, node.x.shape[-1])
        return why or epilogue_refusal(node, "rows")

    def bindings(self, p: MatmulProblem) -> Bindings:
        return (packed_binding(p.node, 1),)

    def defines(self, device: DeviceInfo, params: Params) -> Defines:
        """The defines that depend on the device and parameters alone."""
        raise NotImplementedError

    def _launch(
        self, entry: str, p: MatmulProblem, params: Params, grid: tuple[Any, ...], group: tuple[int, ...], **more: Arg
    ) -> list[Launch]:
        """A launch of `entry` with the arguments that all kernels share, and `more`."""
        node, op, s = p.node, p.node.as_(QuantizedMatMul), p.sizes
        epilogue = rows_epilogue(node, p.device)
        panels = panels_of(p.device)
        args, own = packed_args(node.input(1), node.input(2), node.get(3), op.bits, op.trans_b, panels)
        args |= {"a": node.x, "y": node.y, "M": s.m, "N": s.n, "K": s.k, "block": op.block}
        table, values = codebook_defines(p.device, op.table)
        own |= {"STORAGE": STORAGE[node.y.type.storage], **self.defines(p.device, params), **table}
        return [Launch(entry, {**args, **more, **epilogue.args}, grid, group, own, values + epilogue.prelude)]


def most_rows(device_pack: int) -> int:
    """The most rows of a tile of VECTORS vectors whose accumulators fit 32 registers (AVX-512) or 16."""
    return 6 if device_pack >= 16 else 3


@register
class QuantizedGemvCpu(QuantizedMatmulKernel):
    """Dequantises a panel's words in registers, for MR rows at once."""

    source = "quantized/dequant_gemv_cpu.cl"
    space = {"MR": (1, 2, 3, 4, 5, 6)}

    def defines(self, device: DeviceInfo, params: Params) -> Defines:
        return {"MR": params["MR"], "NV": VECTORS, "KS": 2 if params["MR"] == 1 else 1, "PACK": device.pack}

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return tile_refusal(p, params)

    def defaults(self, p: MatmulProblem) -> Params:
        return {"MR": tile_rows(p)}

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        widen = ceil_div(p.sizes.m, tile_rows(p)) * Unpacking.of(p.device).in_registers / max(1, p.sizes.m)
        return super().seconds(p, Cost(cost.flops * (1 + widen), cost.bytes))

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        s = p.sizes
        grid = (ceil_div(s.n, panel_width(p.device)), ceil_div(s.m, params["MR"]), 1)
        return self._launch("quantized_rows", p, params, grid, GROUP)


def tile_refusal(p: MatmulProblem, params: Params) -> str | None:
    """The reason why register tiles of MR rows do not suit the product, or None."""
    if params["MR"] > most_rows(p.device.pack):
        return "the sums do not fit the registers"
    if params["MR"] > max(hint_of(p.sizes.m), 1):  # correct but slower
        return "the tile has more rows than the product"
    return None


def tile_rows(p: MatmulProblem, each: float | None = None) -> int:
    """Rows per tile, as even as possible. each: fixed cost of a tile in rows, by default dequantisation."""
    m, most = max(1, p.sizes.m), most_rows(p.device.pack)
    if m <= most:
        return int(m)
    more = Unpacking.of(p.device).in_registers if each is None else each
    return min(range(most, max(0, most - 3), -1), key=lambda rows: (ceil_div(m, rows) * (rows + more), -rows))


@register
class QuantizedGemmCpu(QuantizedMatmulKernel):
    """Dequantises a panel in chunks into the L1 cache, once for many rows."""

    source = "quantized/dequant_gemm_cpu.cl"
    space = {"MR": (6, 5, 4, 3, 2), "ROWS": (0, 32, 64, 128)}

    def defines(self, device: DeviceInfo, params: Params) -> Defines:
        return {"MR": params["MR"], "NV": VECTORS, "PACK": device.pack}

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if params["MR"] > most_rows(p.device.pack):
            return "the sums do not fit the registers"
        if params["ROWS"] > TILES * params["MR"]:
            return f"a work-item keeps the sums of {TILES} tiles"
        return None

    def defaults(self, p: MatmulProblem) -> Params:
        return {"MR": most_rows(p.device.pack), "ROWS": 0}

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        m, tile = max(1, p.sizes.m), most_rows(p.device.pack)
        padded = ceil_div(m, tile) * tile / m
        widened = ceil_div(m, TILES * tile) * Unpacking.of(p.device).in_cache / m
        return super().seconds(p, Cost(cost.flops * (padded + widened), cost.bytes))

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        s, tile = p.sizes, params["MR"]
        panels = ceil_div(s.n, panel_width(p.device))
        rows = params["ROWS"] or balanced_rows(s.m, panels, tile, p.device.compute_units)
        rows = ceil_div(rows, tile) * tile
        grid = (panels, ceil_div(s.m, rows), 1)
        return self._launch("quantized_panel", p, params, grid, GROUP, rows=rows)


def balanced_rows(m: int, panels: int, tile: int, cores: int) -> int:
    """Rows per work-item: even, at most `tile` sums in registers, and several work-items per core."""
    pieces = symbolic_max(
        [1, ceil_div(m, TILES * tile), ceil_div(ITEMS_A_CORE * cores // 2, symbolic_max([1, panels]))]
    )
    rows: int = symbolic_max([tile, ceil_div(ceil_div(m, pieces), tile) * tile])
    return rows


LONGEST = 128
"""Numbers of a row that share a scale at most: dot_low_bit_int8.cl has room for so many."""


def scale_group(block: int, columns: int) -> int:
    """Numbers of a row that share a scale: a block, or an even part of one; 0 if no group size fits."""
    if block >= columns:
        return min(LONGEST, columns)
    size = block if block <= LONGEST else LONGEST
    return 0 if size % 16 or block % size else size


def sum_length(p: MatmulProblem) -> int:
    """Terms of a sum, from the constant matrix."""
    b = p.node.input(1)
    return int(b.shape[1 if p.node.as_(QuantizedMatMul).trans_b else 0])


def exact_refusal(p: MatmulProblem) -> str | None:
    """The reason why kernels that keep float activations do not take a QuantizedMatMul, or None."""
    is_exact = activation_quantization_refusal(p) is not None
    return None if is_exact else "accuracy_level 4: all kernels of this device round rows to 8 bits"


def activation_quantization_refusal(p: MatmulProblem) -> str | None:
    """The reason why a QuantizedMatMul keeps float activations, or None if they are quantised."""
    op, dots = p.node.as_(QuantizedMatMul), p.device.byte_dots
    if not op.rounds or op.table:
        return "sums of floats are wanted: neither accuracy_level 4 nor precision int8"
    if not p.device.is_cpu or not dots:
        return "the device has no sums of products of bytes in vectors"
    if dots == "pairs" and op.bits > 4:
        return "pairs of products of 8 bits exceed the 16 bits that they are summed in"
    if not scale_group(op.block, sum_length(p)):
        return f"blocks of {op.block} numbers are no whole number of groups"
    zero = p.node.get(3)
    if zero is not None and zero.dtype.is_float and zero.type.count == 1:
        return "the one zero point is a fraction"
    return None
