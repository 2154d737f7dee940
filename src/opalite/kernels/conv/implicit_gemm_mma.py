"""Implicit-GEMM convolutions of channel-packed halves on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.place import packed
from ...ops.conv import Convolution, ConvTranspose
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_binding, packed_epilogue
from ..filter_window import Window
from ..kernel import Bindings, Kernel, Params, register
from ..launch import STORAGE, Arg, Args, Array, Launch, Weight, ceil_div
from ..mma import mma_tile, staged_tile
from ..mma.mma_cost import FEWEST_POSITIONS, has_aligned_pairs, mma_seconds
from .pack_filters import ConvProblem, bias_weight, taps_refusal

PACK = 4


@dataclass(frozen=True)
class ImplicitGemm:
    """A convolution as a matrix product: `positions` x `channels` results, each a sum of `quads` x 4 terms.

    filters: converts the node's weights to [channels, quads, 4]. form: name of that conversion, part of the weight key.
    defines, args: additional ones for conv/implicit_gemm_positions.cl.
    """

    window: Window
    positions: int
    channels: int
    quads: int
    form: str
    filters: Callable[[Array], Array]
    defines: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Arg] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(positions, channels, quads)."""
        return self.positions, self.channels, self.quads


def implicit_gemm(p: ConvProblem) -> ImplicitGemm:
    """The matrix product that computes convolution `p`."""
    return _conv_transpose_gemm(p) if isinstance(p.node.op, ConvTranspose) else _conv_gemm(p)


def _conv_gemm(p: ConvProblem) -> ImplicitGemm:
    node = p.node
    quads = math.prod(node.input(1).shape[2:]) * ceil_div(node.x.shape[1], PACK)
    return ImplicitGemm(p.window, p.positions, node.y.shape[1], quads, "filter", filter_quads)


def _conv_transpose_gemm(p: ConvProblem) -> ImplicitGemm:
    """A transposed convolution as an implicit GEMM whose channels are (phase, output channel).

    Let i + pad = stride * a + r for output position i. Outputs of equal a read the same inputs a - j, for j below
    ceil(kernel / stride), through filter elements r + stride * j. Therefore a is the position, and (r, channel) is the
    channel, of an ordinary convolution. a starts at the first output's value; `crop` drops the outputs before it.
    """
    node, win = p.node, p.window
    reach = tuple(map(ceil_div, win.kernel, win.strides))
    first = tuple(b // s for b, s in zip(win.begin, win.strides, strict=True))
    out = tuple((o - 1 + b) // s - a + 1 for o, b, s, a in zip(win.out, win.begin, win.strides, first, strict=True))
    begin = tuple(q - 1 - a for q, a in zip(reach, first, strict=True))
    end = tuple(o + q - 1 - i - b for o, q, i, b in zip(out, reach, win.size, begin, strict=True))
    inner = Window(reach, (1, 1, 1), (1, 1, 1), begin, end, win.size, out)  # type: ignore[arg-type]
    channels = ceil_div(node.y.shape[1], PACK) * PACK
    crop = {"c" + axis: b % s for axis, b, s in zip("dhw", win.begin, win.strides, strict=True)}
    size = {"r" + axis: n for axis, n in zip("dhw", win.out, strict=True)}
    defines = {"U" + axis: s for axis, s in zip("DHW", win.strides, strict=True)} | {"SPREAD": 1}
    positions = node.y.shape[0] * math.prod(out)
    quads = math.prod(reach) * ceil_div(node.x.shape[1], PACK)

    def filters(data: Array) -> Array:
        return filter_quads(_conv_transpose_filters(data, win))

    form = f"filter spread by {win.strides}"
    return ImplicitGemm(
        inner, positions, math.prod(win.strides) * channels, quads, form, filters, defines, {**size, **crop}
    )


def _conv_transpose_filters(data: Array, win: Window) -> Array:
    """Transposed-convolution filters [C, M, K...] as [phases * padded M, C, taps...] of an ordinary convolution."""
    (c, m), reach = data.shape[:2], tuple(map(ceil_div, win.kernel, win.strides))
    whole = np.zeros(
        (c, ceil_div(m, PACK) * PACK, *(q * s for q, s in zip(reach, win.strides, strict=True))), data.dtype
    )
    d, h, w = win.kernel
    whole[:, :m, :d, :h, :w] = data.reshape(c, m, d, h, w)
    (qd, qh, qw), (sd, sh, sw) = reach, win.strides
    taken = whole.reshape(c, -1, qd, sd, qh, sh, qw, sw)[:, :, ::-1, :, ::-1, :, ::-1]
    return taken.transpose(3, 5, 7, 1, 0, 2, 4, 6).reshape(-1, c, *reach)


class MmaConv(Kernel):
    """Implicit GEMM, NC4HW4 to NC4HW4, one group. staged: operands go through local memory."""

    problem = ConvProblem
    op = "Conv"
    staged: bool

    def refuse(self, p: ConvProblem) -> str | None:
        node, op = p.node, p.node.as_(Convolution)
        if op.group != 1:
            return f"{op.group} groups; implicit GEMM on matrix units needs one group"
        if isinstance(op, ConvTranspose) and max(op.dilations) > 1:
            return "the taps of a dilated filter are not adjacent for adjacent outputs"
        return mma_tile.mma_refusal(node, p.device) or p.packed_refusal

    def bindings(self, p: ConvProblem) -> Bindings:
        return (epilogue_binding(p.node, "packed", packed(PACK)),)

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        product = implicit_gemm(p)
        paired = has_aligned_pairs(product.window)
        return mma_seconds(*product.sizes, p.device, cost, staged=self.staged, paired=paired)


def filter_quads(data: Array) -> Array:
    """Filters [M, C, K...] as [M, taps * channel blocks, 4]; taps are the outer axis."""
    m, c = data.shape[:2]
    padded = np.zeros((m, ceil_div(c, PACK) * PACK, math.prod(data.shape[2:])), np.float16)
    padded[:, :c] = data.reshape(m, c, -1)
    return padded.transpose(0, 2, 1).reshape(m, -1, 4)


@register
class ConvGemmMma(MmaConv):
    """Operands are loaded straight into registers; with few tiles, warps split the terms."""

    source = "conv/implicit_gemm_mma.cl"
    space = mma_tile.SPACE
    staged = False

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return mma_tile.tile_illegal(params, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        positions, channels, quads = implicit_gemm(p).sizes
        return mma_tile.find_tile(positions, channels, ceil_div(quads, mma_tile.QUADS), p.device)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, bias, y, win = node.x, node.get(2), node.y, p.window
        positions, channels, quads = implicit_gemm(p).sizes
        blocks, in_blocks = ceil_div(channels, PACK), ceil_div(x.shape[1], PACK)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "weights": Weight(node.input(1), "filter mma", _pack_filters), "y": y}
        args |= {} if bias is None else {"bias": bias_weight(bias, PACK, y.type.storage)}
        args |= {"positions": positions, "tiles": ceil_div(channels, 16), "steps": ceil_div(quads, mma_tile.QUADS)}
        args |= {"ib": in_blocks, "ob": blocks, "m": channels, **win.args(), **epilogue.args}
        defines = win.defines() | mma_tile.tile_defines(params)
        defines |= {"PACK": PACK, "HAS_BIAS": bias is not None, "MASK": channels % PACK != 0}
        defines["STORAGE"] = STORAGE[y.type.storage]
        grid, group = mma_tile.tile_grid(params, positions, channels)
        return [Launch("conv_mma", args, grid, group, defines, epilogue.prelude)]


def _pack_filters(data: Array) -> Array:
    return mma_tile.pack_weights(filter_quads(data))


@register
class ConvGemmMmaStaged(MmaConv):
    """Both operands go through local memory."""

    source = "conv/implicit_gemm_mma_staged.cl"
    space = staged_tile.SPACE
    staged = True

    def refuse(self, p: ConvProblem) -> str | None:
        if why := super().refuse(p):
            return why
        product = implicit_gemm(p)
        if why := taps_refusal(product.window):
            return why
        if product.positions < FEWEST_POSITIONS:
            return f"{product.positions} positions would leave most of a stage empty"
        if next(staged_tile.legal_tiles(p.device), None) is None:
            return f"no stages fit the {p.device.local_mem} bytes of local memory"
        return None

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return staged_tile.tile_illegal(params, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        product = implicit_gemm(p)
        return staged_tile.find_tile(*product.sizes, p.device, paired=has_aligned_pairs(product.window))

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node, product = p.node, implicit_gemm(p)
        x, bias, y, win = node.x, node.get(2), node.y, product.window
        positions, channels, quads = product.sizes
        in_blocks, slabs = ceil_div(x.shape[1], PACK), params["SL"]
        taps = math.prod(win.kernel)
        turns = ceil_div(quads, staged_tile.SLAB * slabs)
        epilogue = packed_epilogue(node, p.device)

        def pack(data: Array) -> Array:
            return staged_tile.pack_stages(product.filters(data), slabs)

        weights = Weight(node.input(1), f"{product.form} stages of {slabs}", pack)
        args: Args = {"x": x, "weights": weights, "y": y}
        args |= {} if bias is None else {"bias": bias_weight(bias, PACK, y.type.storage)}
        args["quads"] = quad_table(win, in_blocks, turns * staged_tile.SLAB * slabs)
        args |= {"positions": positions, "tiles": ceil_div(channels, 16), "steps": turns * 2 * slabs, "turns": turns}
        args |= {"ib": in_blocks, "ob": ceil_div(y.shape[1], PACK), "m": y.shape[1]}
        args |= {**win.args(), **product.args, **epilogue.args}
        defines = win.defines() | staged_tile.tile_defines(params) | {"PACK": PACK, "STORAGE": STORAGE[y.type.storage]}
        defines |= {"HAS_BIAS": bias is not None, "MASK": y.shape[1] % PACK != 0, "WIDE": taps > 31}
        defines |= {"PAIR": 2 if has_aligned_pairs(win) else 1, **product.defines}
        grid, group = staged_tile.tile_grid(params, positions, channels)
        return [Launch("conv_staged", args, grid, group, defines, epilogue.prelude)]


@register
class ConvTransposeGemmMmaStaged(ConvGemmMmaStaged):
    """Transposed convolution as an implicit GEMM."""

    op = "ConvTranspose"
    rank = -1


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
