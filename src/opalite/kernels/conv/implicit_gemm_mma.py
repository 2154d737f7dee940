"""Implicit-GEMM convolution of channel-packed halves on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

from ..codegen.epilogue import packed_epilogue
from ..kernel import Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from ..mma.implicit_gemm_base import PACK, MmaConv, filter_quads, implicit_gemm
from ..mma.mma_tile import QUADS, SPACE, find_tile, pack_weights, tile_defines, tile_grid, tile_illegal
from .pack_filters import ConvProblem, bias_weight


@register
class ConvGemmMma(MmaConv):
    """Operands are loaded straight into registers; with few tiles, warps split the terms."""

    space = SPACE
    staged = False

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return tile_illegal(params, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        positions, channels, quads = implicit_gemm(p).sizes
        return find_tile(positions, channels, ceil_div(quads, QUADS), p.device)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, bias, y, win = node.x, node.get(2), node.y, p.window
        positions, channels, quads = implicit_gemm(p).sizes
        blocks, in_blocks = ceil_div(channels, PACK), ceil_div(x.shape[1], PACK)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "weights": Weight(node.input(1), "filter mma", _pack_filters), "y": y}
        args |= {} if bias is None else {"bias": bias_weight(bias, PACK, y.type.storage)}
        args |= {"positions": positions, "tiles": ceil_div(channels, 16), "steps": ceil_div(quads, QUADS)}
        args |= {"ib": in_blocks, "ob": blocks, "m": channels, **win.args(), **epilogue.args}
        defines = win.defines() | tile_defines(params)
        defines |= {"PACK": PACK, "HAS_BIAS": bias is not None, "MASK": channels % PACK != 0}
        defines["STORAGE"] = STORAGE[y.type.storage]
        grid, group = tile_grid(params, positions, channels)
        return [Launch("conv_mma", args, grid, group, defines, epilogue.prelude)]


def _pack_filters(data: Array) -> Array:
    return pack_weights(filter_quads(data))
