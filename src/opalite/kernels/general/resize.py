"""Resize of up to five axes: the programs of the special kernels, with as many axes and taps as there may be."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...ir.graph import Node
from ...ops.resize_taps import Taps
from ..base import Params, Problem, Space
from ..registry import register
from ..vision.resize import MAX_RANK, ResizeAxis, ResizeKernel
from .common import GeneralKernel, float_refusal


class _ResizeGeneral(ResizeKernel, GeneralKernel):
    """Axes of one element fill up to the most there are, and the last one is never known to be copied."""

    space: ClassVar[Space] = {"SPAN": (64, 1), "WG": (16, 64)}

    def illegal(self, p: Problem, params: Params) -> str | None:
        own = self.defaults(p) == params
        return super().illegal(p, params) if own else "a device has one program"

    def with_axes(self, axes: list[ResizeAxis]) -> list[ResizeAxis]:
        last = axes[-1]
        if last.taps is None:
            each = np.arange(last.count, dtype=np.int32)[:, None]
            last = ResizeAxis(last.size, last.count, Taps(each, np.ones(each.shape, np.float32), each[:, 0] >= 0))
        return [ResizeAxis(1, 1, None)] * (MAX_RANK - len(axes)) + axes[:-1] + [last]

    def last_taps(self, node: Node, last: ResizeAxis) -> int:
        return 0


@register
class ResizeNearestGeneral(_ResizeGeneral):
    """Nearest neighbours of elements of four bytes."""

    nearest = True

    def refuse(self, p: Problem) -> str | None:
        if p.node.y.type.storage.size != 4:
            return "the general kernel moves elements of four bytes"
        return super().refuse(p)


@register
class ResizeWeightedGeneral(_ResizeGeneral):
    """Linear, cubic and antialiased interpolation of float32."""

    nearest = False

    def refuse(self, p: Problem) -> str | None:
        return float_refusal(p.node) or super().refuse(p)
