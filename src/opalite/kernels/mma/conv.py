"""What convolutions of channel-packed halves on matrix units share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...ir.graph import Node
from ...ir.place import packed
from ...ops.base import Cost
from ...ops.conv import Convolution
from ..base import Array, Binding, Kernel, ceil_div
from ..codegen.epilogue import operand_layouts
from ..conv.filters import ConvProblem
from .cost import copies_pair, mma_seconds
from .tiles import mma_refusal

PACK = 4


class MmaConv(Kernel):
    """NC4HW4 to NC4HW4 in one group, as a matrix product over positions. staged: by way of local memory."""

    problem = ConvProblem
    op = "Conv"
    staged: ClassVar[bool]

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        if node.as_(Convolution).group != 1:
            return f"{node.as_(Convolution).group} groups; matrix units want all channels in one product"
        return mma_refusal(node, p.device) or p.packed_refusal

    def bindings(self, p: ConvProblem) -> Sequence[Binding]:
        y = packed(PACK)
        constants = (None,) * len(p.node.inputs[1:3])
        return (Binding((y, *constants, *operand_layouts(p.node, "packed", y)), (y,)),)

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        paired = copies_pair(p.window)
        return mma_seconds(*conv_sizes(p.node), p.device, cost, staged=self.staged, paired=paired)


def conv_sizes(node: Node) -> tuple[int, int, int]:
    """(positions, output channels, quads of terms)."""
    quads = math.prod(node.input(1).shape[2:]) * ceil_div(node.x.shape[1], PACK)
    return node.y.shape[0] * math.prod(node.y.shape[2:]), node.y.shape[1], quads


def filter_quads(data: Array) -> Array:
    """Filters [M,C,K...] as [M, taps * channel blocks, 4], the taps outside the channel blocks."""
    m, c = data.shape[:2]
    padded = np.zeros((m, ceil_div(c, PACK) * PACK, math.prod(data.shape[2:])), np.float16)
    padded[:, :c] = data.reshape(m, c, -1)
    return padded.transpose(0, 2, 1).reshape(m, -1, 4)
