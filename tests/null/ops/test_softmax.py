"""Softmax's and Normalize's references against onnxruntime and onnx."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import Array, by_onnx, by_ort, ours

rng = np.random.default_rng(43)
X = (3 * rng.standard_normal((2, 6, 5, 7))).astype(np.float32)
EPSILON = {"epsilon": 1e-3}


def parameters(*shape: int) -> list[Array]:
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("axis", [0, 1, 3])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_softmax(op_type: str, axis: int) -> None:
    (want,) = by_ort(op_type, [X], opset=13, axis=axis)
    (got,) = ours("Softmax", [X], axis=axis, log=op_type == "LogSoftmax")
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_softmax_of_nothing() -> None:
    assert ours("Softmax", [np.zeros((3, 0), np.float32)], axis=1, log=False)[0].shape == (3, 0)


@pytest.mark.parametrize("axis", [1, 3])
def test_layer(axis: int) -> None:
    arrays = [X, *parameters(*X.shape[axis:])]
    (want,) = by_ort("LayerNormalization", list(arrays), opset=17, axis=axis, **EPSILON)
    (got,) = ours("Normalize", arrays, kind="layer", axis=axis, **EPSILON)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_rms() -> None:
    arrays = [X, parameters(7)[0]]
    (want,) = by_onnx("RMSNormalization", list(arrays), opset=23, axis=3, **EPSILON)
    (got,) = ours("Normalize", arrays, kind="rms", axis=3, **EPSILON)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_instance() -> None:
    arrays = [X, *parameters(6)]
    (want,) = by_ort("InstanceNormalization", list(arrays), opset=6, **EPSILON)
    (got,) = ours("Normalize", arrays, kind="instance", **EPSILON)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_group() -> None:
    arrays = [X, *parameters(6)]
    (want,) = by_onnx("GroupNormalization", list(arrays), opset=21, num_groups=3, **EPSILON)
    (got,) = ours("Normalize", arrays, kind="group", num_groups=3, **EPSILON)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_refusals() -> None:
    f32 = TensorType(DType.FLOAT32, (2, 6, 5))
    with pytest.raises(ShapeError, match="axis 3 is outside"):
        make_op("Softmax", {"axis": 3, "log": False}).check_shape([f32])
    with pytest.raises(ShapeError, match="must hold floats"):
        make_op("Softmax", {"axis": 0, "log": False}).check_shape([TensorType(DType.INT32, (3,))])
    with pytest.raises(ShapeError, match="do not divide into 4 groups"):
        make_op("Normalize", {"kind": "group", "num_groups": 4, **EPSILON}).check_shape([f32])
    with pytest.raises(ShapeError, match="scale must broadcast"):
        make_op("Normalize", {"kind": "layer", "axis": 2, **EPSILON}).check_shape(
            [f32, TensorType(DType.FLOAT32, (6, 5))]
        )
    with pytest.raises(ShapeError, match="bias must hold one element"):
        make_op("Normalize", {"kind": "instance", **EPSILON}).check_shape([f32, None, TensorType(DType.FLOAT32, (5,))])
    with pytest.raises(ShapeError, match="kind must be one of"):
        make_op("Normalize", {"kind": "batch", **EPSILON}).check_shape([f32])
