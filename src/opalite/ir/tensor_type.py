"""TensorType: element type, shape and place of a value."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

from ..lazy_dataclass import dataclass
from .dtype import DType
from .place import OPENCL, Layout, Place
from .symbols import hint_of

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorType:
    """Element type, shape (integers, or SymbolicInts of the graph's trace) and Place of a Value."""

    dtype: DType
    shape: Shape
    place: Place = OPENCL

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @cached_property  # slow for symbolic shapes
    def count(self) -> int:
        """Number of logical elements."""
        return math.prod(self.shape)

    @property
    def layout(self) -> Layout:
        """Layout of the place."""
        return self.place.layout

    @property
    def storage(self) -> DType:
        """Element type in memory: the place's precision, else the dtype."""
        return self.place.precision or self.dtype

    @cached_property  # slow for symbolic shapes
    def nbytes(self) -> int:
        """Bytes in memory, channel padding of a packed layout included."""
        return math.prod(self.layout.storage_shape(self.shape)) * self.storage.size

    def with_place(self, place: Place) -> TensorType:
        """The same tensor somewhere else."""
        return replace(self, place=place)

    def fits(self, other: TensorType) -> bool:
        """Whether dtype and shape are equal; places may differ."""
        return self.dtype is other.dtype and self.shape == other.shape

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(str(hint_of(d)) for d in self.shape)}]"
