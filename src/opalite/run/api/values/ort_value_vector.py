"""OrtValueVector: a list of OrtValues, in onnxruntime's API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .ort_value import OrtValue


class OrtValueVector(list[OrtValue]):
    """A list of values with the methods of a C++ vector."""

    def push_back(self, value: Any) -> None:
        """Append a value, or a tensor of another library through DLPack."""
        self.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value))

    def push_back_batch(self, tensors: Iterable[Any], *rest: Any) -> None:
        """Append all values or arrays of `tensors`."""
        self.extend(t if isinstance(t, OrtValue) else OrtValue.ortvalue_from_numpy(t) for t in tensors)

    def reserve(self, count: int) -> None:
        """Do nothing: lists grow automatically."""

    def shrink_to_fit(self) -> None:
        """Do nothing."""

    def element_type_at(self, index: int) -> int:
        """The number of the element type of one value in ONNX."""
        return self[index].element_type()

    def dlpack_at(self, index: int) -> Any:
        """A DLPack capsule of one value."""
        return self[index].to_dlpack()

    def to_dlpacks(self, *to_tensor: Any) -> Sequence[Any]:
        """A DLPack capsule of each value, or the result of `to_tensor` on it."""
        capsules = [v.to_dlpack() for v in self]
        convert = to_tensor[0] if to_tensor and to_tensor[0] is not None else None
        return capsules if convert is None else [convert(c) for c in capsules]
