"""OrtValue: a value in host or device memory, in onnxruntime's API."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.runtime import Runtime, find_runtime
from ....errors import BindingError, InputTypeError, NoDeviceError, UnsupportedApiError
from ....ir.device.device_info import DeviceInfo
from ....ir.dtype import DType
from .host_memory_errors import host_memory

Array = np.ndarray[Any, Any]
HOST = "cpu"
DEVICE = "opencl"
PINNED = "opencl_pinned"
exported_handles: set[int] = set()
"""cl_mem handles returned by `OrtValue.data_ptr`; other numbers are addresses in memory of other libraries."""
GPU_NAMES = ("cuda", "gpu", "hip", "dml", "webgpu")

# Names of element types in ONNX, in the order of their numbers.
_NAMES = (
    *("float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "double", "uint32"),
    *("uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2"),
    *("float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2"),
)
_DTYPES = {"float": DType.FLOAT32, "double": DType.FLOAT64}
_NUMBERS = {_DTYPES.get(name) or DType[name.upper()]: (number, name) for number, name in enumerate(_NAMES, 1)}


class OrtValue:
    """A tensor in host or device memory, which sessions read and write in place; or a sequence or map.

    `ortvalue_from_numpy` and similar methods create it. `IOBinding`, `session.run` and `session.run_with_ort_values`
    accept it. Outputs may be sequences (lists) and maps (dicts). NumPy functions accept a tensor; a device tensor is
    downloaded.
    """

    __slots__ = ("__weakref__", "_type", "value")

    def __init__(self, value: Any, onnx_type: str = "") -> None:
        """value: an array, a DeviceTensor, a list or a dict. onnx_type: the ONNX type of a list or dict."""
        self.value: Any = value.value if isinstance(value, OrtValue) else value
        self._type = onnx_type

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str | DeviceInfo = HOST, device_id: int | str = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Create a value of an array: the array itself for 'cpu', a copy for 'opencl' and 'opencl_pinned'.

        Pinned host memory is transferred by the device's DMA, several times as fast as other arrays. device_type may
        also be a session's `device`. device_id: 0 for the default device, or a device request of InferenceSession.
        """
        array = np.asarray(numpy_obj)
        if device_type == PINNED:
            value = OrtValue(pinned_array(array.shape, array.dtype, device_id))
            value.update_inplace(array)
            return value
        rt = find_device_memory(device_type, device_id)
        if rt is None:
            return OrtValue(array)
        value = OrtValue(DeviceTensor(rt, array.shape, device_dtype(array.dtype)))
        value.update_inplace(array)
        return value

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Any, /, onnx_element_type: int) -> OrtValue:
        """Create a value that reinterprets the array's memory as another type, such as uint16 as bfloat16 (16)."""
        array, dtype = np.asarray(data), parse_element_type(onnx_element_type)
        if array.dtype.itemsize != dtype.itemsize or array.dtype.hasobject:
            raise BindingError(
                f"elements of {array.dtype} have {array.dtype.itemsize} bytes, but {dtype} has {dtype.itemsize}: give "
                "an array whose elements have the same size"
            )
        return OrtValue(array if array.dtype == dtype else np.ascontiguousarray(array).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str | DeviceInfo = HOST,
        device_id: int | str = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> OrtValue:
        """Create a value with undefined contents. element_type: a NumPy type, or ONNX's number of a type."""
        dtype, sizes = parse_element_type(element_type), parse_shape(shape)
        with host_memory(f"allocating {dtype}{list(sizes)}"):
            if device_type == PINNED:
                return OrtValue(pinned_array(sizes, dtype, device_id))
            rt = find_device_memory(device_type, device_id)
            if rt is None:
                return OrtValue(np.zeros(sizes, dtype))
            return OrtValue(DeviceTensor(rt, sizes, device_dtype(dtype)))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> OrtValue:
        """Raise UnsupportedApiError: sparse tensors are not supported."""
        raise UnsupportedApiError("sparse tensors are not offered: give the dense array")

    def as_sparse_tensor(self) -> Any:
        """Raise UnsupportedApiError: the value is dense."""
        raise UnsupportedApiError("this OrtValue does not contain a sparse tensor: numpy() gives the dense array")

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """Create a value that shares the memory of an object with `__dlpack__`, or of a capsule.

        Elements of less than a byte are copied. Raises BindingError for memory that the host cannot read, and for
        tensors that are not row-major.
        """
        from .dlpack import from_capsule

        if isinstance(data, np.ndarray):
            if not data.flags.c_contiguous:
                raise BindingError(f"the array of shape {list(data.shape)} is not row-major: make it contiguous first")
            return OrtValue(data)
        return OrtValue(from_capsule(data.__dlpack__() if hasattr(data, "__dlpack__") else data))

    def to_dlpack(self) -> Any:
        """A DLPack capsule that shares host memory, or has a copy of device memory."""
        from .dlpack import to_capsule

        return to_capsule(self.numpy())

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        from .dlpack import CPU_DEVICE

        return CPU_DEVICE

    def shape(self) -> list[int]:
        """The sizes of the axes. Raises BindingError for a sequence or map."""
        return list(self._tensor("shape").shape)

    def data_type(self) -> str:
        """The ONNX type, such as 'tensor(float)'."""
        return f"tensor({self._numbers()[1]})" if self.is_tensor() else self._type or "unknown"

    def element_type(self) -> int:
        """The number of the element type in ONNX."""
        return self._numbers()[0]

    def tensor_size_in_bytes(self) -> int:
        """The bytes of all elements. Raises BindingError for text, sequences and maps."""
        value = self._tensor("size")
        if value.dtype.hasobject:
            raise BindingError("text has no size in bytes")
        return int(value.size) * int(value.dtype.itemsize)

    def device_name(self) -> str:
        """'cpu' for host memory, pinned or not, else 'opencl'."""
        return DEVICE if isinstance(self.value, DeviceTensor) else HOST

    def has_value(self) -> bool:
        """Whether there is a value: False for an empty optional."""
        return self.value is not None

    def is_tensor(self) -> bool:
        """Whether the value is a dense tensor."""
        return isinstance(self.value, np.ndarray | np.generic | DeviceTensor)

    def is_sparse_tensor(self) -> bool:
        """False: sparse tensors are not supported."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Whether the value is a list of tensors."""
        return isinstance(self.value, list) and "map(" not in self._type

    def data_ptr(self) -> int:
        """The address in host memory, or the cl_mem handle of device memory."""
        value = self._tensor("address")
        if isinstance(value, DeviceTensor):
            handle = int(value.buffer.int_ptr)
            exported_handles.add(handle)
            return handle
        if not value.flags.c_contiguous:  # a view of a KV cache; readers of an address expect no gaps
            self.value = value = np.ascontiguousarray(value)
        return int(value.__array_interface__["data"][0])

    def numpy(self) -> Array:
        """The array in host memory itself, or a copy of device memory after the device has finished."""
        value = self._tensor("array")
        return value.numpy() if isinstance(value, DeviceTensor) else value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)
        return array.copy() if copy else array

    def update_inplace(self, data: Any) -> None:
        """Copy an array or another value into this memory. Raises BindingError if size or element type differ."""
        if not isinstance(data, OrtValue | np.ndarray):
            raise InputTypeError(f"data must be a numpy.ndarray or an OrtValue, got {type(data).__name__}")
        own, new = self._tensor("memory"), data._tensor("array") if isinstance(data, OrtValue) else data
        if int(new.size) != int(own.size) or new.dtype != own.dtype:
            raise BindingError(
                f"this OrtValue holds {own.dtype}{self.shape()}, got {new.dtype}{list(new.shape)}; "
                "make another OrtValue for it"
            )
        if not isinstance(own, DeviceTensor):
            if not own.flags.writeable:  # a view of a KV cache that went on
                self.value = own = np.empty(own.shape, own.dtype)
            np.copyto(own, np.asarray(new).reshape(own.shape))
        elif isinstance(new, DeviceTensor) and new.rt is own.rt:
            own.copy_from(new)
            own.rt.finish()
        else:
            own.write(np.asarray(new).reshape(own.shape))

    def _tensor(self, what: str) -> Any:
        if not self.is_tensor():
            raise BindingError(f"this OrtValue is {self.data_type()}, which has no {what}: it holds {self.value!r:.60}")
        return self.value

    def _numbers(self) -> tuple[int, str]:
        value = self.value
        if isinstance(value, list) and value:
            value = value[0]
        if not hasattr(value, "dtype"):
            raise BindingError(f"this OrtValue is {self.data_type()}, which has no element type")
        return _NUMBERS[DType.of(value.dtype)]

    # Private names that code written for onnxruntime reads.

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self


class OrtValueVector(list[OrtValue]):
    """A list of values with the methods of a C++ vector."""

    def push_back(self, value: Any) -> None:
        """Append an OrtValue, or another library's tensor, taken through DLPack."""
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


def find_device_memory(device_type: str | DeviceInfo, device_id: int | str = 0) -> Runtime | None:
    """The runtime of the named memory, None for host memory. Raises BindingError for unknown names.

    onnxruntime's names of GPUs ('cuda', 'gpu', 'dml'...) mean the default GPU.
    """
    if isinstance(device_type, DeviceInfo):
        return find_runtime(device_type.id)
    if device_type == HOST:
        return None
    if device_type in GPU_NAMES:
        return _find_gpu(device_type, device_id)
    if device_type != DEVICE:
        raise BindingError(
            f"device_type is 'cpu' or 'opencl_pinned' (host memory), 'opencl' or a session's device, got "
            f"{device_type!r}"
        )
    if device_id == 0:
        return find_runtime(None)
    if not isinstance(device_id, str):
        raise BindingError(
            f"device_id is 0 or a text that names a device, such as '0:1' or 'nvidia:gpu:0', got {device_id!r}; "
            "`opalite devices` lists them"
        )
    return find_runtime(device_id)


def _find_gpu(word: str, device_id: int | str) -> Runtime:
    if device_id != 0:
        raise BindingError(
            f"'{word}' with device_id {device_id!r} is not known: name the device, as in ('opencl', '0:1')"
        )
    try:
        default = find_runtime(None)
        return default if not default.info.on_host else find_runtime("gpu")
    except NoDeviceError as e:
        raise BindingError(
            f"device_type '{word}' needs a GPU, and no OpenCL GPU was found: use 'cpu', or 'opencl' for the CPU device"
        ) from e


def pinned_array(shape: Sequence[int], dtype: np.dtype[Any], device_id: int | str = 0) -> Array:
    """Allocate zeros in pinned host memory. Raises BindingError for types that the device cannot hold."""
    rt = find_device_memory(DEVICE, device_id)
    assert rt is not None
    device_dtype(dtype)
    count = math.prod(int(d) for d in shape)
    return rt.pinned(count * dtype.itemsize).view(dtype).reshape(tuple(shape))


def parse_element_type(element_type: Any) -> np.dtype[Any]:
    """The NumPy type of a NumPy type or of ONNX's number. Raises BindingError for anything else."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        for dtype, (number, _) in _NUMBERS.items():
            if number == element_type:
                return dtype.np  # type: ignore[no-any-return]
        raise BindingError(f"{element_type} is not an ONNX element type that tensors can have here")
    try:
        return DType.of(np.dtype(element_type)).np  # type: ignore[no-any-return]
    except (TypeError, ValueError) as e:
        raise BindingError(f"{element_type!r} is not an element type: give a NumPy type or ONNX's number of one") from e


def parse_shape(shape: Any) -> tuple[int, ...]:
    """Check a shape. Raises InputTypeError for other types, BindingError for negative sizes."""
    try:
        sizes = tuple(operator.index(d) for d in shape)
    except TypeError:
        raise InputTypeError(f"a shape is whole numbers such as (1, 3, 224, 224), got {shape!r}") from None
    if any(d < 0 for d in sizes):
        raise BindingError(f"the shape {sizes} has a negative size; give the sizes that the memory has")
    return sizes


def device_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Check that OpenCL memory can hold `dtype`. Raises BindingError otherwise."""
    try:
        known = DType.of(dtype)
    except (TypeError, ValueError):
        known = None
    if known is None or not known.on_device:
        raise BindingError(f"an OpenCL device cannot hold an array of {dtype}; keep it in host memory ('cpu')")
    return dtype
