"""The transposed convolution that serves every valid node: row-major tensors, any rank up to 3."""

from __future__ import annotations

from ..kernel_registry import register
from .direct_row_major import ConvDirect


@register
class ConvTransposeDirect(ConvDirect):
    """Gathers each output element from the inputs that scatter to it, so that no work-items write the same place."""

    op = "ConvTranspose"
    source = "conv/transposed_row_major.cl"
    entry = "conv_transpose_direct"
