"""OrtValue: a value in host or device memory, with onnxruntime's calls."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..cl.runtime import Runtime, find_runtime
from ..cl.tensor import DeviceTensor
from ..errors import InputError
from ..ir.device import DeviceInfo
from ..ir.dtype import DType
from .limits import host_memory

Array = np.ndarray[Any, Any]
HOST = "cpu"
DEVICE = "opencl"
PINNED = "opencl_pinned"

# ONNX's numbers and names of element types.
_NUMBERS = {
    DType.FLOAT32: (1, "float"),
    DType.UINT8: (2, "uint8"),
    DType.INT8: (3, "int8"),
    DType.UINT16: (4, "uint16"),
    DType.INT16: (5, "int16"),
    DType.INT32: (6, "int32"),
    DType.INT64: (7, "int64"),
    DType.STRING: (8, "string"),
    DType.BOOL: (9, "bool"),
    DType.FLOAT16: (10, "float16"),
    DType.FLOAT64: (11, "double"),
    DType.UINT32: (12, "uint32"),
    DType.UINT64: (13, "uint64"),
    DType.COMPLEX64: (14, "complex64"),
    DType.COMPLEX128: (15, "complex128"),
    DType.BFLOAT16: (16, "bfloat16"),
}


class OrtValue:
    """A tensor in host memory, or in that of an OpenCL device, where sessions read and write it in place.

    Made by `ortvalue_from_numpy` and `ortvalue_from_shape_and_type`; taken by `IOBinding`, `session.run` and
    `session.run_with_ort_values`. NumPy takes it for an array; from the device that is a transfer.
    """

    __slots__ = ("value",)

    def __init__(self, value: Array | DeviceTensor) -> None:
        self.value = value

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Any, device_type: str | DeviceInfo = HOST, device_id: int | str = 0) -> OrtValue:
        """A value that holds `numpy_obj`: the array itself for 'cpu', a copy for 'opencl' and 'opencl_pinned'.

        Pinned is host memory that the device copies by itself, several times as fast as other arrays.
        device_type may be a session's `device` too. device_id: 0 for the device that sessions take by themselves, or
        one that `InferenceSession(device=...)` understands. InputError for memory or types that there are not.
        """
        array = np.asarray(numpy_obj)
        if device_type == PINNED:
            value = OrtValue(pinned_array(array.shape, array.dtype, device_id))
            value.update_inplace(array)
            return value
        rt = find_memory(device_type, device_id)
        if rt is None:
            return OrtValue(array)
        value = OrtValue(DeviceTensor(rt, array.shape, device_dtype(array.dtype)))
        value.update_inplace(array)
        return value

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str | DeviceInfo = HOST,
        device_id: int | str = 0,
    ) -> OrtValue:
        """A value of `shape`; element_type is a NumPy type or ONNX's number of one. Its contents are not settled."""
        dtype, sizes = parse_element_type(element_type), parse_shape(shape)
        with host_memory(f"making room for {dtype}{list(sizes)}"):
            if device_type == PINNED:
                return OrtValue(pinned_array(sizes, dtype, device_id))
            rt = find_memory(device_type, device_id)
            if rt is None:
                return OrtValue(np.zeros(sizes, dtype))
            return OrtValue(DeviceTensor(rt, sizes, device_dtype(dtype)))

    def shape(self) -> list[int]:
        """Sizes along the axes."""
        return list(self.value.shape)

    def data_type(self) -> str:
        """Such as 'tensor(float)'."""
        return f"tensor({_NUMBERS[DType.of(self.value.dtype)][1]})"

    def element_type(self) -> int:
        """ONNX's number of the element type."""
        return _NUMBERS[DType.of(self.value.dtype)][0]

    def device_name(self) -> str:
        """'cpu' for host memory, pinned or not, else 'opencl'."""
        return DEVICE if isinstance(self.value, DeviceTensor) else HOST

    def has_value(self) -> bool:
        """True: an OrtValue always holds something."""
        return True

    def is_tensor(self) -> bool:
        """True: sequences are plain lists here."""
        return True

    def data_ptr(self) -> int:
        """Address in host memory; the cl_mem handle for a value on the device."""
        if isinstance(self.value, DeviceTensor):
            return int(self.value.buffer.int_ptr)
        return int(self.value.__array_interface__["data"][0])

    def numpy(self) -> Array:
        """The array in host memory itself; a copy of one on the device, once the device has finished."""
        return self.value.numpy() if isinstance(self.value, DeviceTensor) else self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def update_inplace(self, np_arr: Any) -> None:
        """Store `np_arr`. InputError unless shape and element type are this value's."""
        array = np.asarray(np_arr)
        if array.shape != tuple(self.value.shape) or array.dtype != self.value.dtype:
            raise InputError(
                f"this OrtValue holds {self.value.dtype}{self.shape()}, got {array.dtype}{list(array.shape)}; "
                "make another OrtValue for it"
            )
        if isinstance(self.value, DeviceTensor):
            self.value.write(array)
        else:
            np.copyto(self.value, array)


def find_memory(device_type: str | DeviceInfo, device_id: int | str = 0) -> Runtime | None:
    """The runtime whose memory is meant, None for the host's. InputError for a word that is neither."""
    if isinstance(device_type, DeviceInfo):
        return find_runtime(device_type.id)
    if device_type == HOST:
        return None
    if device_type != DEVICE:
        raise InputError(
            f"device_type is 'cpu' or 'opencl_pinned' (host memory), 'opencl' or a session's device, got "
            f"{device_type!r}: every OpenCL device, GPUs too, is 'opencl'"
        )
    if device_id == 0:
        return find_runtime(None)
    if not isinstance(device_id, str):
        raise InputError(
            f"device_id is 0 or a text that names a device, such as '0:1' or 'nvidia:gpu:0', got {device_id!r}; "
            "`opalite devices` lists them"
        )
    return find_runtime(device_id)


def pinned_array(shape: Sequence[int], dtype: np.dtype[Any], device_id: int | str = 0) -> Array:
    """Zeros in host memory that the device copies by itself. InputError for types that it cannot hold."""
    rt = find_memory(DEVICE, device_id)
    assert rt is not None
    device_dtype(dtype)
    count = math.prod(int(d) for d in shape)
    return rt.pinned(count * dtype.itemsize).view(dtype).reshape(tuple(shape))


def parse_element_type(element_type: Any) -> np.dtype[Any]:
    """The NumPy type of a NumPy type or of ONNX's number; InputError for anything else."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        for dtype, (number, _) in _NUMBERS.items():
            if number == element_type:
                return dtype.np  # type: ignore[no-any-return]
        raise InputError(f"{element_type} is no element type of ONNX that a tensor here may have")
    try:
        return DType.of(np.dtype(element_type)).np  # type: ignore[no-any-return]
    except (TypeError, ValueError) as e:
        raise InputError(f"{element_type!r} is no element type: give a NumPy type or ONNX's number of one") from e


def parse_shape(shape: Any) -> tuple[int, ...]:
    """Sizes along the axes; InputError for anything else."""
    try:
        sizes = tuple(operator.index(d) for d in shape)
    except TypeError:
        raise InputError(f"a shape is whole numbers such as (1, 3, 224, 224), got {shape!r}") from None
    if any(d < 0 for d in sizes):
        raise InputError(f"the shape {sizes} has a negative size; give the sizes that the memory has")
    return sizes


def device_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`dtype`, if OpenCL memory can hold it; InputError otherwise."""
    try:
        known = DType.of(dtype)
    except (TypeError, ValueError):
        known = None
    if known is None or not known.on_device:
        raise InputError(f"an array of {dtype} cannot lie on an OpenCL device; keep it in host memory ('cpu')")
    return dtype
