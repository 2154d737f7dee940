"""InputSpec: an input that a command loads, and its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import InputError
from ..ir.dtype import DType


@dataclass(frozen=True)
class InputSpec:
    """Name, dtype, shape (None for open dimensions) and example shape of an input."""

    name: str
    dtype: DType
    shape: tuple[int | None, ...]
    example: tuple[int, ...]


def concrete_shape(w: InputSpec, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape given on the command line, else the example's."""
    given = shapes.get(w.name)
    if given is None or not w.shape:  # () may also mean that the model declares no shape
        return w.example if given is None else given
    if len(given) != len(w.shape) or any(d is not None and d != g for d, g in zip(w.shape, given, strict=True)):
        dims = "x".join("?" if d is None else str(d) for d in w.shape)
        raise InputError(f"--shape {w.name}:{'x'.join(map(str, given))} does not fit input '{w.name}', which is {dims}")
    return given
