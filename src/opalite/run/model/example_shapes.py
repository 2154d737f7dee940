"""Shapes to try a model with where it leaves dimensions open."""

from __future__ import annotations

from collections.abc import Sequence

from .model_inputs_outputs import NodeArg

PICTURE = 224  # height and width of what most image networks are trained on
LENGTH = 16  # tokens or steps of a sequence
_IMAGE_RANK = 4


def example_shapes(inputs: Sequence[NodeArg]) -> dict[str, tuple[int, ...]]:
    """A shape for every input, by name: open spatial axes of pictures get 224, axis 1 of integers 16, all others 1.

    Dimensions of one symbolic name are equal, the first that occurs decides. Names with "batch" are 1.
    """
    named: dict[str, int] = {}
    return {a.name: tuple(_size(a, axis, named) for axis in range(len(a.shape))) for a in inputs}


def _size(arg: NodeArg, axis: int, named: dict[str, int]) -> int:
    dim = arg.shape[axis]
    if isinstance(dim, int):
        return dim
    guess = _guess(arg, axis)
    if not dim:
        return guess
    return named.setdefault(dim, 1 if "batch" in dim.lower() else guess)


def _guess(arg: NodeArg, axis: int) -> int:
    if axis == 0:
        return 1
    if len(arg.shape) == _IMAGE_RANK and arg.dtype is not None and _is_spatial(arg.shape, axis):
        return PICTURE
    if len(arg.shape) == 2 and arg.dtype is not None and arg.dtype.is_int:
        return LENGTH
    return 1


def _is_spatial(shape: Sequence[int | str | None], axis: int) -> bool:
    """Whether `axis` is a height or width beside 1 to 4 channels, which come first (NCHW) or last (NHWC)."""
    if shape[1] in (1, 2, 3, 4):
        return axis >= 2
    return shape[3] in (1, 2, 3, 4) and axis in (1, 2)
