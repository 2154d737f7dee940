"""DLPack: values handed to other libraries and taken from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onnx import TensorProto as T

from . import models
from .idiom import idiom
from .models import X

CPU = ["CPUExecutionProvider"]


@idiom
def lent_to_numpy(ort: Any, tmp: Path) -> Any:
    x = X.copy()
    array = np.from_dlpack(ort.OrtValue.ortvalue_from_numpy(x))
    return array, np.shares_memory(array, x)


@idiom
def lent_types(ort: Any, tmp: Path) -> Any:
    values = [ort.OrtValue.ortvalue_from_numpy(np.arange(4).astype(k)) for k in models.KINDS]
    return [np.from_dlpack(v).copy() for v in values]


@idiom
def lent_to_another_value(ort: Any, tmp: Path) -> Any:
    a = ort.OrtValue.ortvalue_from_numpy(X.copy())
    b = ort.OrtValue.from_dlpack(a)
    c = ort.OrtValue.from_dlpack(a.__dlpack__())
    d = ort.OrtValue.from_dlpack(a._ortvalue.to_dlpack())
    return b, c, d, [v.data_ptr() == a.data_ptr() for v in (b, c, d)], a.__dlpack_device__()


@idiom
def lent_bool(ort: Any, tmp: Path) -> Any:
    flags = ort.OrtValue.ortvalue_from_numpy(np.array([True, False, True]))
    numbers = ort.OrtValue.ortvalue_from_numpy(np.array([1, 2, 255], np.uint8))
    found = [ort.OrtValue.from_dlpack(v) for v in (flags, numbers)]
    return [(v.data_type(), v.numpy().copy()) for v in found]


@idiom
def lent_without_elements(ort: Any, tmp: Path) -> Any:
    shapes = (1, 8, 0, 128), (0,), (0, 4), (4, 0)
    return [ort.OrtValue.from_dlpack(ort.OrtValue.ortvalue_from_numpy(np.zeros(s, np.float32))).shape() for s in shapes]


@idiom
def taken_from_numpy(ort: Any, tmp: Path) -> Any:
    x = np.arange(6.0).reshape(2, 3)
    v, c = ort.OrtValue.from_dlpack(x), ort.OrtValue.from_dlpack(np.arange(3.0).__dlpack__())
    return v, c, v.data_ptr() == x.ctypes.data


@idiom
def taken_in_columns(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.from_dlpack(np.arange(6.0).reshape(2, 3).T)


@idiom
def taken_from_nothing(ort: Any, tmp: Path) -> Any:
    ort.OrtValue.from_dlpack(5)


@idiom
def taken_and_fed(ort: Any, tmp: Path) -> Any:
    v = ort.OrtValue.from_dlpack(X)
    return ort.InferenceSession(models.multiply(), providers=CPU).run(None, {"X": v})


@idiom
def taken_bool_of_numpy(ort: Any, tmp: Path) -> Any:
    return ort.OrtValue.from_dlpack(np.array([True, False]))


@idiom
def bytes_for_bool(ort: Any, tmp: Path) -> Any:
    """As libraries export it that know DLPack before it had a type of bool: bytes they are."""

    class Tensor:
        dtype = np.dtype(bool)

        def __dlpack__(self, **keywords: Any) -> Any:
            return np.array([1, 0], np.uint8).__dlpack__()

    return ort.OrtValue.from_dlpack(Tensor()).data_type()


@idiom
def lent_small_floats(ort: Any, tmp: Path) -> Any:
    kinds = (T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.FLOAT8E8M0, T.BFLOAT16)
    found = []
    for kind in kinds:
        bits = np.arange(6, dtype=np.uint16 if kind == T.BFLOAT16 else np.uint8).reshape(2, 3)
        v = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)
        taken = ort.OrtValue.from_dlpack(v)
        found.append((taken.data_type(), taken.shape(), taken.data_ptr() == v.data_ptr()))
    return found


@idiom
def lent_packed(ort: Any, tmp: Path) -> Any:
    """What one session makes is handed to another: an odd number of elements, so that the last byte is not full."""
    found = []
    for kind in (T.INT4, T.UINT4):
        x = np.arange(-8.0, 7).astype(np.float32) + (8 if kind == T.UINT4 else 0)
        (v,) = ort.InferenceSession(models.cast(T.FLOAT, kind, (15,), 21), providers=CPU).run_with_ort_values(
            None, {"X": ort.OrtValue.ortvalue_from_numpy(x)}
        )
        taken = ort.OrtValue.from_dlpack(v)
        back = ort.InferenceSession(models.cast(kind, T.FLOAT, (15,), 21), providers=CPU)
        found.append((taken.data_type(), taken.shape(), back.run(None, {"X": taken})))
    return found
