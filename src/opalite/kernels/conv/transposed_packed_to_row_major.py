"""Transposed convolution from channel-packed blocks to few row-major channels, as in segmentation networks."""

from __future__ import annotations

from ..filter_window import Window
from ..kernel import register
from ..launch import Array
from .packed_to_row_major import ConvPackedToRowMajor


@register
class ConvTransposePackedToRowMajor(ConvPackedToRowMajor):
    """NCHWc to NCHW; a tile is the output columns that use the same filter columns."""

    op = "ConvTranspose"
    entry = "conv_transpose_last"

    def phases(self, win: Window) -> int:
        return win.strides[2]

    def filters(self, data: Array) -> Array:
        return data.swapaxes(0, 1)
