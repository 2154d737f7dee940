"""What a session tells of its model: inputs, outputs and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.dtype import DType


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


@dataclass(frozen=True)
class ModelMetadata:
    """What the file says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)
