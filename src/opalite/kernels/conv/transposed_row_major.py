"""Transposed convolution for every valid node: row-major tensors, any rank up to 3."""

from __future__ import annotations

from ..kernel import register
from .direct_row_major import ConvDirect


@register
class ConvTransposeDirect(ConvDirect):
    """Gathers the inputs of each output element, so that no two work-items write the same element."""

    op = "ConvTranspose"
    entry = "conv_transpose_direct"
