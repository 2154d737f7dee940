"""Tensor: the handle of an input or output of a predictor."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from ..errors import InputError, InputTypeError

Array = np.ndarray[Any, Any]


class DataType(IntEnum):
    """Element types, with Paddle's numbers."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2
    UINT8 = 3
    INT8 = 4
    FLOAT16 = 5
    BOOL = 6
    FLOAT64 = 7
    BFLOAT16 = 8


class PlaceType(IntEnum):
    """Kinds of places, with Paddle's numbers."""

    UNK = -1
    CPU = 0
    GPU = 1
    XPU = 2
    CUSTOM = 4


def get_num_bytes_of_data_type(dtype: DataType) -> int:
    """Return the size of an element in bytes."""
    sizes = {DataType.INT64: 8, DataType.FLOAT64: 8, DataType.FLOAT16: 2, DataType.BFLOAT16: 2}
    return sizes.get(dtype, 1 if dtype in (DataType.UINT8, DataType.INT8, DataType.BOOL) else 4)


class Tensor:
    """Handle of an input, which copy_from_cpu fills, or of an output, which a run fills."""

    def __init__(self, name: str, dtype: str, is_input: bool) -> None:
        """Initialise an empty tensor; dtype: the name of NumPy's type that the program declares."""
        self._name = name
        self._dtype = dtype
        self._is_input = is_input
        self._wanted: tuple[int, ...] | None = None
        self.held: Any = None

    def name(self) -> str:
        """Return the name in the program."""
        return self._name

    def reshape(self, shape: Sequence[int]) -> None:
        """Set what `shape` returns; the next copy_from_cpu has the sizes of its array, as in Paddle."""
        self._check_input("reshape")
        found = tuple(int(d) for d in shape)
        if any(d < 0 for d in found):
            raise InputError(f"input '{self._name}' cannot have the shape {list(found)}")
        self._wanted = found

    def copy_from_cpu(self, data: Any) -> None:
        """Copy an array; the handle keeps it for all runs until the next copy. TypeError for anything but an array."""
        self._check_input("copy_from_cpu")
        if not isinstance(data, np.ndarray):
            raise InputTypeError(f"copy_from_cpu takes a NumPy array, got {type(data).__name__}")
        self._wanted = None  # the array's own sizes hold
        self.held = np.array(data, order="C")

    def share_external_data(self, data: Any) -> None:
        """Use an array, an OrtValue or a DLPack tensor without a copy; its contents are read by each run."""
        self._check_input("share_external_data")
        if not isinstance(data, np.ndarray) and hasattr(data, "__dlpack__") and not hasattr(data, "_ortvalue"):
            data = np.from_dlpack(data) if _on_host(data) else data
        self._wanted = None
        self.held = data

    def copy_to_cpu(self) -> Array:
        """Return a copy of the contents. InputError before the first run."""
        if self.held is None:
            what = "has no contents yet: call copy_from_cpu" if self._is_input else "is empty: run the predictor first"
            raise InputError(f"tensor '{self._name}' {what}")
        return np.array(self.held)

    def shape(self) -> list[int]:
        """Return the sizes now; none before the first run."""
        found = self._wanted if self._wanted is not None else getattr(self.held, "shape", ())
        return [int(d) for d in (found() if callable(found) else found)]

    def type(self) -> DataType:
        """Return the element type."""
        name = str(self.held.dtype) if isinstance(self.held, np.ndarray) else self._dtype
        try:
            return DataType[name.upper()]
        except KeyError:
            raise InputTypeError(f"tensor '{self._name}' has the type {name}, for which Paddle has no number") from None

    def lod(self) -> list[list[int]]:
        """Return the offsets of sequences: none."""
        return []

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Accept an empty level of detail; InputError for others."""
        if any(len(level) for level in lod):
            raise InputError(
                f"input '{self._name}' gets a level of detail (LoD), which no operator here reads: pad the sequences"
            )

    def _check_input(self, call: str) -> None:
        if not self._is_input:
            raise InputError(f"'{self._name}' is an output: {call} is for inputs")


def _on_host(data: Any) -> bool:
    """Whether a DLPack tensor is in the memory of the host."""
    return bool(data.__dlpack_device__()[0] == 1)
