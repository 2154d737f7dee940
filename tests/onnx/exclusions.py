"""Backend cases that are not expected to pass, each with its reason. The list must stay short."""

from __future__ import annotations

_GRADIENT = "Gradient differentiates a graph for training; inference has no such operator"
_FRACTION = (
    "The vectors align the corners to a fraction of an element; the standard's formula has the length of the output, "
    "as onnxruntime and PyTorch"
)

EXCLUDED: dict[str, str] = {
    "simple/test_gradient_of_add": _GRADIENT,
    "simple/test_gradient_of_add_and_mul": _GRADIENT,
    "node/test_resize_downsample_scales_cubic_align_corners": _FRACTION,
    "node/test_resize_downsample_scales_linear_align_corners": _FRACTION,
}
