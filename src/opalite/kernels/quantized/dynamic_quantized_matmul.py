"""QuantizedMatMul with activations quantised to int8 at run time, by a CPU's dot-product instructions."""

from __future__ import annotations

from typing import Any

from ...cost.cost_tables import ByteDots
from ...ir.device.device_info import DeviceInfo
from ...ops.operator import Cost
from ...ops.quantized_matmul import QuantizedMatMul
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import STORAGE, Arg, Args, Defines, Launch, Scratch, ceil_div
from ..matmul.matmul_problem import MatmulProblem
from .pack_low_bit import VECTORS, packed_args, panel_width, panels_of, take_zero
from .quantized_matmul_cpu import (
    GROUP,
    TILES,
    QuantizedMatmulKernel,
    balanced_rows,
    most_rows,
    scale_group,
    sum_length,
    tile_rows,
)

_DOTS = {"": 0, "pairs": 1, "fours": 2}


class DynamicQuantizedMatmul(QuantizedMatmulKernel):
    """Base class of kernels on int8 activations: the launch that quantises rows in groups along the sum."""

    entry: str
    rounds = True

    def defines(self, device: DeviceInfo, params: Params) -> Defines:
        return {"MR": params["MR"], "NV": VECTORS, "PACK": device.pack, "DOTS": _DOTS[device.byte_dots]}

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return "the sums do not fit the registers" if params["MR"] > most_rows(p.device.pack) else None

    def _quantized_launches(self, p: MatmulProblem, params: Params, grid: tuple[Any, ...], **more: Arg) -> list[Launch]:
        """The launch that quantises the rows, then the product with `more` arguments."""
        node, op, s, k = p.node, p.node.as_(QuantizedMatMul), p.sizes, sum_length(p)
        size = scale_group(op.block, k)
        groups = ceil_div(k, size)
        stride = s.m + max(self.space["MR"]) - 1  # the last tile reads up to that many rows past the end
        args: Args = {"M": s.m, "K": k, "stride": stride, "group": size}
        args["q"] = Scratch("bytes", stride * groups * ceil_div(size, 16) * 16)
        args |= {name: Scratch(name, 4 * stride * groups) for name in ("by", "sums")}
        weights, own = packed_args(node.input(1), node.input(2), node.get(3), op.bits, op.trans_b, panels_of(p.device))
        zero = take_zero(weights, op.bits)
        defines = {"STORAGE": STORAGE[node.y.type.storage], "PACK": p.device.pack, "BITS": op.bits}
        source = "quantized/quantize_activations.cl"
        first = Launch("quantize_activations", {**args, "a": node.x}, (stride, 1, 1), GROUP, defines, source=source)
        epilogue = rows_epilogue(node, p.device)
        args |= {**weights, "y": node.y, "N": s.n, "groups": max(1, op.block // size)}
        args |= {"zero": round(zero), **more, **epilogue.args}
        defines |= {**own, **self.defines(p.device, params)}
        return [first, Launch(self.entry, args, grid, GROUP, defines, epilogue.prelude)]

    def _gemm_seconds(self, p: MatmulProblem, tiles: float, rows: float, spread: float) -> float:
        """Seconds of `tiles` tiles of `rows` rows that unpack numbers to bytes `spread` times."""
        c, s, op = ByteDots.of(p.device), p.sizes, p.node.as_(QuantizedMatMul)
        size = max(1, scale_group(op.block, sum_length(p)))
        pair = c.pairs if p.device.byte_dots == "pairs" else 1.0
        vectors = s.n * s.k / p.device.pack
        dots = tiles * rows * vectors * (pair / 4 + c.finish / size)
        clocks = dots + spread * vectors * c.spread / 4 + s.m * s.k / p.device.pack * c.rounding
        return 2 * p.device.pack * clocks / (p.device.peak_flops * self.share(p.device))


@register
class Int8ActivationGemvCpu(DynamicQuantizedMatmul):
    """Unpacks a panel's words to bytes in registers, for MR rows at once."""

    source, entry = "quantized/int8_activation_gemv_cpu.cl", "bytes_rows"
    space = {"MR": (1, 2, 3, 4, 5, 6)}

    def defaults(self, p: MatmulProblem) -> Params:
        return {"MR": tile_rows(p)}

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        rows = tile_rows(p)
        tiles = ceil_div(max(1, p.sizes.m), rows)
        return max(self._gemm_seconds(p, tiles, rows, tiles), cost.bytes / p.device.bandwidth) + 2 * p.device.launch_s

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        s = p.sizes
        return self._quantized_launches(
            p, params, (ceil_div(s.n, panel_width(p.device)), ceil_div(s.m, params["MR"]), 1)
        )


@register
class Int8ActivationGemmCpu(DynamicQuantizedMatmul):
    """Unpacks a group of a panel to bytes in the L1 cache, once for many rows."""

    source, entry = "quantized/int8_activation_gemm_cpu.cl", "bytes_panel"
    space = {"MR": (6, 5, 4, 3, 2), "ROWS": (0, 32, 64, 128)}

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if params["ROWS"] > TILES * params["MR"]:
            return f"a work-item keeps the sums of {TILES} tiles"
        return super().illegal(p, params)

    def defaults(self, p: MatmulProblem) -> Params:
        return {"MR": most_rows(p.device.pack), "ROWS": 0}

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        m, tile = max(1, p.sizes.m), most_rows(p.device.pack)
        clocks = self._gemm_seconds(p, ceil_div(m, tile), tile, 2 * ceil_div(m, TILES * tile))
        return max(clocks, cost.bytes / p.device.bandwidth) + 2 * p.device.launch_s

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        s, tile = p.sizes, params["MR"]
        panels = ceil_div(s.n, panel_width(p.device))
        rows = params["ROWS"] or balanced_rows(s.m, panels, tile, p.device.compute_units)
        rows = ceil_div(rows, tile) * tile
        return self._quantized_launches(p, params, (panels, ceil_div(s.m, rows), 1), rows=rows)
