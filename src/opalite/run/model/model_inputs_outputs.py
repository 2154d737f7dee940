"""Descriptions of a session's inputs, outputs and metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import BundleError, OpaliteError
from ...ir.dtype import DType
from ...ir.model_edits import ModelMetadata
from ...lazy_dataclass import dataclass

if TYPE_CHECKING:
    from .imported_model import ImportedModel

__all__ = ["ModelMetadata", "NodeArg", "describe_model", "example_shapes"]

PICTURE = 224  # height and width of what most image networks are trained on
LENGTH = 16  # tokens or steps of a sequence
_IMAGE_RANK = 4


@dataclass(frozen=True)
class NodeArg:
    """Name, type ('tensor(float)') and shape of a graph input or output; open dimensions are strings or None.

    any_rank: the model does not even say how many dimensions there are; `shape` is [] then, as in onnxruntime.
    """

    name: str
    type: str
    shape: list[int | str | None]
    dtype: DType | None = None  # None for sequences and optionals
    any_rank: bool = False

    @property
    def is_optional(self) -> bool:
        """Whether a run may leave the input out."""
        return self.type.startswith("optional")

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


def describe_model(model: ImportedModel) -> dict[str, Any]:
    """A bundle's description of `model`, as JSON. BundleError for inputs or outputs that are no tensors."""
    metadata = dataclasses.asdict(model.meta)
    metadata["custom_metadata_map"] = dict(metadata["custom_metadata_map"])
    return {
        "inputs": [_port(a) for a in model.inputs],
        "outputs": [_port(a) for a in model.outputs],
        "overridable": [_port(a) for a in model.overridable],
        "metadata": metadata,
        "opset": model.opset,
    }


def _port(a: NodeArg) -> dict[str, Any]:
    if a.dtype is None:
        raise BundleError(f"'{a.name}' is {a.type}: only models of tensors can be compiled; run the .onnx file")
    return {"name": a.name, "type": a.type, "shape": list(a.shape), "dtype": a.dtype.short, "any_rank": a.any_rank}


def example_shapes(inputs: Sequence[NodeArg], length: int = 1) -> dict[str, tuple[int, ...]]:
    """A shape for every input, by name: open spatial axes of pictures get 224, axis 1 of integers 16, batches 1.

    Dimensions of one symbolic name are equal, the first that occurs decides. Names with "batch" are 1. length: of all
    other open axes, such as samples of sound.
    """
    named: dict[str, int] = {}
    return {a.name: tuple(_size(a, axis, named, length) for axis in range(len(a.shape))) for a in inputs}


@contextmanager
def assumed_shapes(assumed: Mapping[str, tuple[int, ...]]) -> Iterator[None]:
    """Add the shapes that were assumed for open inputs to errors of the block: they may not suit the model."""
    try:
        yield
    except OpaliteError as e:
        for name, shape in assumed.items():
            dims = "x".join(map(str, shape))
            e.add_context(f"with shape {dims} assumed for input '{name}', which is open; give --shape {name}:...")
        raise


def _size(arg: NodeArg, axis: int, named: dict[str, int], length: int) -> int:
    dim = arg.shape[axis]
    if isinstance(dim, int):
        return dim
    guess = _guess(arg, axis, length)
    if not dim:
        return guess
    return named.setdefault(dim, 1 if "batch" in dim.lower() else guess)


def _guess(arg: NodeArg, axis: int, length: int) -> int:
    if axis == 0:
        return 1
    if len(arg.shape) == _IMAGE_RANK and arg.dtype is not None and _is_spatial(arg.shape, axis):
        return PICTURE
    if len(arg.shape) == 2 and arg.dtype is not None and arg.dtype.is_int:
        return LENGTH
    return length


def _is_spatial(shape: Sequence[int | str | None], axis: int) -> bool:
    """Whether `axis` is a height or width beside 1 to 4 channels, which come first (NCHW) or last (NHWC)."""
    if shape[1] in (1, 2, 3, 4):
        return axis >= 2
    return shape[3] in (1, 2, 3, 4) and axis in (1, 2)
