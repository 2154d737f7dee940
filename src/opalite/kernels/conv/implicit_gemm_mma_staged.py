"""Implicit-GEMM convolution of channel-packed halves on matrix units, operands staged in local memory."""

from __future__ import annotations

import math

import numpy as np

from ..codegen.epilogue import packed_epilogue
from ..filter_window import Window
from ..kernel import Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from ..mma.implicit_gemm_base import PACK, MmaConv, implicit_gemm
from ..mma.mma_cost import FEWEST_POSITIONS, has_aligned_pairs
from ..mma.staged_tile import SLAB, SPACE, find_tile, legal_tiles, pack_stages, tile_defines, tile_grid, tile_illegal
from .pack_filters import ConvProblem, bias_weight, taps_refusal


@register
class ConvGemmMmaStaged(MmaConv):
    """Both operands go through local memory."""

    space = SPACE
    staged = True

    def refuse(self, p: ConvProblem) -> str | None:
        if why := super().refuse(p):
            return why
        product = implicit_gemm(p)
        if why := taps_refusal(product.window):
            return why
        if product.positions < FEWEST_POSITIONS:
            return f"{product.positions} positions would leave most of a stage empty"
        if next(legal_tiles(p.device), None) is None:
            return f"no stages fit the {p.device.local_mem} bytes of local memory"
        return None

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return tile_illegal(params, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        product = implicit_gemm(p)
        return find_tile(*product.sizes, p.device, paired=has_aligned_pairs(product.window))

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node, product = p.node, implicit_gemm(p)
        x, bias, y, win = node.x, node.get(2), node.y, product.window
        positions, channels, quads = product.sizes
        in_blocks, slabs = ceil_div(x.shape[1], PACK), params["SL"]
        taps = math.prod(win.kernel)
        turns = ceil_div(quads, SLAB * slabs)
        epilogue = packed_epilogue(node, p.device)

        def pack(data: Array) -> Array:
            return pack_stages(product.filters(data), slabs)

        weights = Weight(node.input(1), f"{product.form} stages of {slabs}", pack)
        args: Args = {"x": x, "weights": weights, "y": y}
        args |= {} if bias is None else {"bias": bias_weight(bias, PACK, y.type.storage)}
        args["quads"] = quad_table(win, in_blocks, turns * SLAB * slabs)
        args |= {"positions": positions, "tiles": ceil_div(channels, 16), "steps": turns * 2 * slabs, "turns": turns}
        args |= {"ib": in_blocks, "ob": ceil_div(y.shape[1], PACK), "m": y.shape[1]}
        args |= {**win.args(), **product.args, **epilogue.args}
        defines = win.defines() | tile_defines(params) | {"PACK": PACK, "STORAGE": STORAGE[y.type.storage]}
        defines |= {"HAS_BIAS": bias is not None, "MASK": y.shape[1] % PACK != 0, "WIDE": taps > 31}
        defines |= {"PAIR": 2 if has_aligned_pairs(win) else 1, **product.defines}
        grid, group = tile_grid(params, positions, channels)
        return [Launch("conv_staged", args, grid, group, defines, epilogue.prelude)]


@register
class ConvTransposeGemmMmaStaged(ConvGemmMmaStaged):
    """Transposed convolution as an implicit GEMM."""

    op = "ConvTranspose"


def quad_table(win: Window, in_blocks: int, count: int) -> Array:
    """int32[count, 2]: block distance and tap of each quad; entries past the last quad point past the end."""
    (_, h, w), taps = win.size, math.prod(win.kernel)
    kd, kh, kw = win.kernel
    table = np.zeros((count, 2), np.int32)
    table[:, 1] = taps
    tap, block = np.divmod(np.arange(taps * in_blocks), in_blocks)
    z, y, x = (i * d for i, d in zip(np.unravel_index(tap, (kd, kh, kw)), win.dilations, strict=True))
    table[: tap.size, 0] = block * math.prod(win.size) + (z * h + y) * w + x
    table[: tap.size, 1] = tap
    return table
