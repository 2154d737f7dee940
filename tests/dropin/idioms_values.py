"""OrtValue, OrtDevice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onnx import TensorProto as T

from . import models
from .idiom import differs, idiom, refused
from .models import X

CPU = ["CPUExecutionProvider"]


@idiom
def value_of_an_array(ort: Any, tmp: Path) -> Any:
    x = X.copy()
    v = ort.OrtValue.ortvalue_from_numpy(x)
    shared = v.data_ptr() == x.ctypes.data, np.shares_memory(v.numpy(), x)
    kinds = v.is_tensor(), v.is_sparse_tensor(), v.is_tensor_sequence(), v.has_value()
    return v.device_name(), v.shape(), v.data_type(), v.element_type(), v.tensor_size_in_bytes(), shared, kinds, v


@idiom
def value_of_each_type(ort: Any, tmp: Path) -> Any:
    return [ort.OrtValue.ortvalue_from_numpy(np.ones((2, 3), k)) for k in models.KINDS]


@idiom
def value_of_columns(ort: Any, tmp: Path) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(X.T)


@idiom
def value_by_shape_and_type(ort: Any, tmp: Path) -> Any:
    make = ort.OrtValue.ortvalue_from_shape_and_type
    made = [make([2, 3], t) for t in (np.float32, np.dtype("int64"), "float16", 7, T.BFLOAT16)]
    return [(v.shape(), v.data_type(), v.element_type()) for v in made]


@idiom
def value_by_shape_in_memory_named(ort: Any, tmp: Path) -> Any:
    v = ort.OrtValue.ortvalue_from_shape_and_type(shape=[2], element_type=np.float32, device_type="cpu", device_id=0)
    v.update_inplace(np.ones(2, np.float32))
    return v


@idiom
def value_of_an_onnx_type(ort: Any, tmp: Path) -> Any:
    make = ort.OrtValue.ortvalue_from_numpy_with_onnx_type
    same = make(X, 1)
    half, eighth = make(np.array([0x3F80, 0x4000], np.uint16), T.BFLOAT16), make(np.zeros((2, 2), np.uint8), 17)
    return same, (half.data_type(), half.element_type(), half.shape()), (eighth.data_type(), eighth.shape())


@idiom
def value_of_an_onnx_type_of_another_size(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_numpy_with_onnx_type(X, T.BFLOAT16)


@idiom
def value_of_a_type_that_is_none(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_shape_and_type([2], 999)


@idiom
def value_of_a_negative_size(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_shape_and_type([2, -3], np.float32)


@idiom
def value_of_a_shape_that_is_a_number(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_shape_and_type(2, np.float32)


@differs("text may be held too")
def value_of_text(ort: Any, tmp: Path) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(np.array(["a", "b"])).data_type()


@differs("lists are made arrays")
def value_of_a_list(ort: Any, tmp: Path) -> Any:
    return ort.OrtValue.ortvalue_from_numpy([1.0]).shape()


@idiom
def value_on_a_gpu_that_is_not_there(ort: Any, tmp: Path) -> Any:
    if ort.get_device() != "CPU":
        raise RuntimeError("there is one")
    ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)


@differs("bfloat16 comes as ml_dtypes' type")
def value_of_bfloat16_as_an_array(ort: Any, tmp: Path) -> Any:
    return ort.OrtValue.ortvalue_from_shape_and_type([2], T.BFLOAT16).numpy().shape


@idiom
def value_updated(ort: Any, tmp: Path) -> Any:
    v = ort.OrtValue.ortvalue_from_numpy(X.copy())
    at = v.data_ptr()
    v.update_inplace(X * 2)
    first = v.numpy().copy()
    v.update_inplace(ort.OrtValue.ortvalue_from_numpy(X * 3))
    second = v.numpy().copy()
    v.update_inplace((X * 4).reshape(2, 3))
    return first, second, v, v.data_ptr() == at


@idiom
def value_updated_by_another_size(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_numpy(X.copy()).update_inplace(X[:2])


@differs("another element type is refused, where onnxruntime stores the bytes")
def value_updated_by_another_type(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_numpy(np.zeros(4, np.int32)).update_inplace(np.ones(4, np.float32))


@idiom
def value_updated_by_a_list(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_numpy(X.copy()).update_inplace([1.0])


@idiom
def value_as_an_array(ort: Any, tmp: Path) -> Any:
    x = X.copy()
    v = ort.OrtValue.ortvalue_from_numpy(x)
    found = np.asarray(v), np.array(v), np.asarray(v, np.float64), np.asarray(v, np.float32)
    return *found, found[0].ctypes.data == v.data_ptr(), found[3].ctypes.data == v.data_ptr()


@idiom
def value_fed(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    v = ort.OrtValue.ortvalue_from_numpy(X)
    return session.run(["Y"], {"X": v}), session.run_with_ort_values(["Y"], {"X": v}), v


@idiom
def value_fed_for_all_outputs(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    return session.run_with_ort_values(None, {"X": ort.OrtValue.ortvalue_from_numpy(X)}, ort.RunOptions())


@idiom
def values_without_inputs(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), providers=CPU).run_with_ort_values(["Y"], {})


@idiom
def value_of_a_sequence(ort: Any, tmp: Path) -> Any:
    a = ort.OrtValue.ortvalue_from_numpy(np.ones((2, 3), np.int64))
    session = ort.InferenceSession(models.constructed(), providers=CPU)
    (v,) = session.run_with_ort_values(None, {"A": a, "B": a})
    return v.data_type(), v.element_type(), v.is_tensor(), v.is_tensor_sequence(), v.has_value()


@idiom
def array_of_a_sequence(ort: Any, tmp: Path) -> Any:
    a = ort.OrtValue.ortvalue_from_numpy(np.ones((2, 3), np.int64))
    session = ort.InferenceSession(models.constructed(), providers=CPU)
    session.run_with_ort_values(None, {"A": a, "B": a})[0].numpy()


@idiom
def bfloat16_fed(ort: Any, tmp: Path) -> Any:
    v = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x3F80, 0x4000], np.uint16), T.BFLOAT16)
    session = ort.InferenceSession(models.cast(T.BFLOAT16, T.FLOAT), providers=CPU)
    return session.get_inputs()[0].type, session.run(None, {"X": v})


@idiom
def bfloat16_computed(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.cast(T.FLOAT, T.BFLOAT16), providers=CPU)
    (v,) = session.run_with_ort_values(None, {"X": ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))})
    return v.data_type(), v.shape()


@differs("bfloat16 comes as ml_dtypes' type")
def bfloat16_as_an_array(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.cast(T.FLOAT, T.BFLOAT16), providers=CPU)
    return session.run(None, {"X": np.ones(2, np.float32)})[0].shape


@idiom
def vector_of_values(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    state = __import__(f"{ort.__name__}.capi.onnxruntime_pybind11_state", fromlist=["OrtValueVector"])
    x = ort.OrtValue.ortvalue_from_numpy(X)
    feeds = state.OrtValueVector()
    feeds.push_back(x._ortvalue)
    fetches = state.OrtValueVector()
    where = ort.OrtDevice.make("cpu", 0)._get_c_device()
    session.run_with_ortvaluevector(ort.RunOptions(), ["X"], feeds, ["Y"], fetches, [where])
    return len(fetches), fetches[0].numpy(), fetches.element_type_at(0)


@idiom
def vector_by_dlpack(ort: Any, tmp: Path) -> Any:
    state = __import__(f"{ort.__name__}.capi.onnxruntime_pybind11_state", fromlist=["OrtValueVector"])
    v, x = state.OrtValueVector(), X.copy()
    v.push_back(ort.OrtValue.ortvalue_from_numpy(x)._ortvalue)
    v.push_back(ort.OrtValue.ortvalue_from_numpy(np.array([True, False])).__dlpack__())
    taken = [ort.OrtValue.from_dlpack(c) for c in v.to_dlpacks(None)]
    return [(t.data_type(), t.numpy().copy()) for t in taken], taken[0].data_ptr() == x.ctypes.data


@idiom
def copies_between_values(ort: Any, tmp: Path) -> Any:
    a, b = (ort.OrtValue.ortvalue_from_numpy(np.full((2, 2), i, np.float32)) for i in (1, 2))
    if ort.__name__ == "onnxruntime":  # refuses to copy on the CPU in this version
        b.update_inplace(a)
    else:
        ort.copy_tensors([a], [b])
    return b


@refused("sparse tensors")
def sparse_by_coordinates(ort: Any, tmp: Path) -> Any:
    indices = np.array([3, 5, 15], np.int64)
    ort.SparseTensor.sparse_coo_from_numpy([9, 9], np.ones(3, np.float32), indices, ort.OrtDevice.make("cpu", 0))


@refused("sparse tensors")
def sparse_by_rows(ort: Any, tmp: Path) -> Any:
    inner, outer = np.array([1, 1, 1], np.int64), np.array([0, 1, 2, 3, 3, 3, 3, 3, 3, 3], np.int64)
    cpu = ort.OrtDevice.make("cpu", 0)
    ort.SparseTensor.sparse_csr_from_numpy([9, 9], np.ones(3, np.float32), inner, outer, cpu)


@refused("sparse tensors")
def value_as_sparse(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.ortvalue_from_numpy(X).as_sparse_tensor()


# Devices and memory


@idiom
def devices_by_name(ort: Any, tmp: Path) -> Any:
    made = [ort.OrtDevice.make(n, i) for n, i in (("cpu", 0), ("cuda", 1), ("gpu", 2), ("npu", 0))]
    return [(d.device_id(), d.device_type(), d.device_vendor_id(), d.device_mem_type()) for d in made]


@idiom
def devices_by_vendor(ort: Any, tmp: Path) -> Any:
    d = ort.OrtDevice.make("gpu", 0, ort.OrtDeviceVendorId.AMD)
    return d.device_vendor_id() == ort.OrtDeviceVendorId.AMD, int(ort.OrtDeviceVendorId.NVIDIA)


@differs("an InputError says which words there are")
def device_of_another_name(ort: Any, tmp: Path) -> Any:
    try:
        ort.OrtDevice.make("tpu", 0)
    except Exception as e:
        return str(e)
    return ""


@idiom
def memory_described(ort: Any, tmp: Path) -> Any:
    m = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    n = ort.OrtMemoryInfo.create_v2(
        "Test",
        ort.OrtMemoryInfoDeviceType.CPU,
        0,
        0,
        ort.OrtDeviceMemoryType.DEFAULT,
        128,
        ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
    )
    return [(i.name, i.device_id, i.mem_type, i.allocator_type, i.device_mem_type, i.device_vendor_id) for i in (m, n)]


@idiom
def arena_described(ort: Any, tmp: Path) -> Any:
    a = ort.OrtArenaCfg(8, 0, 4, 2)
    b = ort.OrtArenaCfg({"max_mem": 16, "arena_extend_strategy": 1, "initial_growth_chunk_size_bytes": 2})
    names = ["max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk"]
    return [getattr(a, n) for n in names], b.max_mem, b.initial_growth_chunk_size_bytes
