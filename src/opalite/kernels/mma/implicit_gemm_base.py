"""Base of implicit-GEMM convolutions of channel-packed halves on matrix units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.place import packed
from ...ops.conv import Convolution, ConvTranspose
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_binding
from ..conv.pack_filters import ConvProblem
from ..filter_window import Window
from ..kernel import Bindings, Kernel
from ..launch import Arg, Array, ceil_div
from .mma_cost import has_aligned_pairs, mma_seconds
from .mma_tile import mma_refusal

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
        return mma_refusal(node, p.device) or p.packed_refusal

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
