"""The transposed convolution that serves every valid node: row-major tensors, any rank up to 3."""

from __future__ import annotations

from .base import register
from .conv_direct import ConvDirect


@register
class ConvTransposeDirect(ConvDirect):
    """Gathers each output element from the inputs that scatter to it, so that no work-items write the same place."""

    op = "ConvTranspose"
    source = "conv_transpose_direct.cl"
    entry = "conv_transpose_direct"
