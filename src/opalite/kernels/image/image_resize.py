"""Resize of tensors in images, in every mode, along height and width."""

from __future__ import annotations

import numpy as np

from ...ops.resize import Resize, resized_axes
from ...ops.resize_weights import Taps, is_untouched
from ..kernel import Params, Problem, register
from ..launch import Args, Array, Launch, ceil_div
from .image_layout import ImageKernel, image_prelude


@register
class ImageResize(ImageKernel):
    """Taps and their weights are read from tables, so that one program serves all sizes and modes."""

    op = "Resize"

    def refuse(self, p: Problem) -> str | None:
        node, op = p.node, p.node.as_(Resize)
        if len(node.x.shape) == 4 and not (is_untouched(op, 0) and is_untouched(op, 1)):
            return f"texels need N and C kept, got {node.x.type} to {op.sizes}"
        if op.coordinate == "tf_crop_and_resize":
            return "an extrapolation value would fill the lanes past the last channel"
        return super().refuse(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, channels, ih, iw = node.x.shape
        oh, ow = node.y.shape[2:]
        taps = resized_axes(node.as_(Resize), node.x.shape)
        rows, row_weight = _table(taps.get(2), ih)
        columns, column_weight = _table(taps.get(3), iw)
        blocks = ceil_div(channels, 4)
        args: Args = {"x": node.x, "y": node.y, "row_at": rows.ravel(), "row_weight": row_weight.ravel()}
        args |= {"column_at": columns.ravel(), "column_weight": column_weight.ravel()}
        args |= {"rtaps": rows.shape[1], "ctaps": columns.shape[1], "blocks": blocks, "rows": n * oh}
        args |= {"ih": ih, "iw": iw, "oh": oh, "ow": ow}
        return [Launch("image_resize", args, (blocks * ow, n * oh), prelude=image_prelude(node))]


def _table(taps: Taps | None, size: int) -> tuple[Array, Array]:
    """(positions int32, weights float32), each [out, taps]; the identity if there are no taps."""
    if taps is None:
        return np.arange(size, dtype=np.int32)[:, None], np.ones((size, 1), np.float32)
    return taps.index, taps.weight
