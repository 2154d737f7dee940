"""Implicit-GEMM convolution of channel-packed halves by Hopper's wgmma instructions."""

from __future__ import annotations

import math

import numpy as np

from ...ops.operator import Cost
from ..codegen.epilogue import packed_epilogue
from ..fma.tile_parameters import full_operands
from ..kernel import Params, register
from ..launch import STORAGE, Args, Array, Launch, Scratch, Weight, ceil_div
from ..mma import wgmma_tile
from ..mma.mma_cost import FEWEST_POSITIONS, has_aligned_pairs, warpgroup_seconds
from ..mma.wgmma_tile import WgmmaProblem
from .implicit_gemm_mma import PACK, MmaConv, implicit_gemm, quad_table
from .pack_filters import ConvProblem, bias_weight, taps_refusal


@register
class ConvGemmWgmma(MmaConv):
    """Input pixels go to registers, filters through local memory."""

    source = "conv/implicit_gemm_wgmma.cl"
    space = wgmma_tile.SPACE

    def refuse(self, p: ConvProblem) -> str | None:
        if why := wgmma_tile.warpgroup_refusal(p.device) or super().refuse(p):
            return why
        product, channels = implicit_gemm(p), p.node.x.shape[1]
        if channels % (PACK * wgmma_tile.CHUNK):
            return f"{channels} channels are not a multiple of {PACK * wgmma_tile.CHUNK}"
        if product.positions < FEWEST_POSITIONS:
            return f"{product.positions} positions would leave most of a tile empty"
        return taps_refusal(product.window)

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return wgmma_tile.tile_illegal(params)

    def defaults(self, p: ConvProblem) -> Params:
        return wgmma_tile.find_tile(_work(p), p.device)

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        return warpgroup_seconds(_work(p), p.device, cost, paired=has_aligned_pairs(p.window))

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node, product = p.node, implicit_gemm(p)
        x, bias, y, win = node.x, node.get(2), node.y, product.window
        positions, channels, quads = product.sizes
        blocks, in_blocks, chunks = (
            ceil_div(channels, PACK),
            ceil_div(x.shape[1], PACK),
            ceil_div(quads, wgmma_tile.CHUNK),
        )
        (rows, columns), parts = wgmma_tile.tile_size(params), params["PARTS"]
        epilogue = packed_epilogue(node, p.device)

        def pack(data: Array) -> Array:
            return wgmma_tile.pack_chunks(product.filters(data), columns)

        args: Args = {"x": x, "weights": Weight(node.input(1), f"{product.form} warpgroup by {columns}", pack)}
        args["starts"] = np.ascontiguousarray(
            quad_table(win, in_blocks, (chunks + 1) * wgmma_tile.CHUNK)[:: wgmma_tile.CHUNK]
        )
        high, wide = ceil_div(positions, rows), ceil_div(channels, columns)
        args |= {"positions": positions, "chunks": chunks, "high": high, "wide": wide}
        args |= {"ib": in_blocks, "ob": blocks, "m": channels, **win.args()}
        finish: Args = {"y": y, **epilogue.args}
        finish |= {} if bias is None else {"bias": bias_weight(bias, PACK, y.type.storage)}
        defines = (
            win.defines() | wgmma_tile.tile_defines(params, node) | {"PACK": PACK, "STORAGE": STORAGE[y.type.storage]}
        )
        defines |= {"HAS_BIAS": bias is not None, "MASK": channels % PACK != 0, "WIDE": math.prod(win.kernel) > 31}
        defines["SKIP"] = max(win.dilations) > 1
        grid, group = wgmma_tile.tile_grid(params, high, wide)
        if parts == 1:
            return [Launch("conv_warpgroup", args | finish, grid, group, defines, epilogue.prelude)]
        sums = {"parts": Scratch("parts", parts * blocks * positions * PACK * 4)}
        finish |= {"positions": positions, "blocks": blocks, "m": channels, "spatial": math.prod(win.out)}
        return [
            Launch("conv_warpgroup", args | sums, grid, group, defines, epilogue.prelude),
            Launch("conv_parts", finish | sums, (positions, blocks), None, defines, epilogue.prelude),
        ]


def _work(p: ConvProblem) -> WgmmaProblem:
    return WgmmaProblem(*implicit_gemm(p).sizes, pieces=True, operands=full_operands(p.node))
