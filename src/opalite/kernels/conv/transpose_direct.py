"""The transposed convolution that serves every valid node: row-major tensors, any rank up to 3."""

from __future__ import annotations

from ..registry import register
from .direct import ConvDirect


@register
class ConvTransposeDirect(ConvDirect):
    """Gathers each output element from the inputs that scatter to it, so that no work-items write the same place."""

    op = "ConvTranspose"
    source = "conv/transpose_direct.cl"
    entry = "conv_transpose_direct"
