"""Descriptions of a session's inputs, outputs and metadata."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dtype import DType
from ...ir.model_edits import ModelMetadata

__all__ = ["ModelMetadata", "NodeArg"]


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
