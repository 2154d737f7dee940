"""Conv, ConvTranspose and Pool references against onnxruntime, and their shape errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnx import TensorProto, helper
from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ops.operator import make_op, make_type

ort = pytest.importorskip("onnxruntime")


def run_onnx(op: str, arrays: list[Any], outputs: int = 1, opset: int = 22, **attrs: Any) -> list[Any]:
    """Outputs of one ONNX node in onnxruntime."""
    kind = {"f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "b": TensorProto.INT8, "B": TensorProto.UINT8}
    names = [f"x{i}" for i, a in enumerate(arrays) if a is not None]
    outs = [f"y{i}" for i in range(outputs)]
    infos = [helper.make_tensor_value_info(f"x{i}", kind[a.dtype.char], a.shape) for i, a in enumerate(arrays)]
    out_infos = [helper.make_tensor_value_info(n, kind[arrays[0].dtype.char], None) for n in outs[:1]]
    out_infos += [helper.make_tensor_value_info(n, TensorProto.INT64, None) for n in outs[1:]]
    graph = helper.make_graph([helper.make_node(op, names, outs, **attrs)], "g", infos, out_infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {f"x{i}": a for i, a in enumerate(arrays)}))


def check(op: str, attrs: dict[str, Any], arrays: list[Any], want: list[Any]) -> None:
    """The reference and the inferred types agree with `want`."""
    operator = make_op(op, attrs)
    types = [make_type(DType.of(a), a.shape) for a in arrays]
    operator.check_shape(types)
    got = operator.reference(arrays)
    inferred = operator.infer_shape(types)
    assert len(got) == len(want) == len(inferred)
    for g, w, t in zip(got, want, inferred, strict=True):
        assert g.shape == w.shape == t.shape
        assert g.dtype == w.dtype == t.dtype.np
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


CONVS = [  # C, M, group, spatial, kernel, strides, pads, dilations
    (5, 7, 1, (13,), (3,), (2,), (1, 2), (1,)),
    (6, 9, 3, (11, 7), (3, 2), (1, 3), (2, 0, 1, 3), (2, 1)),
    (7, 7, 7, (11, 13), (5, 3), (2, 1), (2, 1, 2, 1), (1, 1)),
    (3, 5, 1, (5, 7, 11), (2, 3, 3), (1, 2, 1), (0, 1, 1, 1, 0, 1), (1, 1, 2)),
]


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("bias", [False, True])
def test_conv_matches_onnxruntime(case: Any, bias: bool) -> None:
    c, m, group, spatial, kernel, strides, pads, dilations = case
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, c, *spatial), (m, c // group, *kernel), (m,))]
    arrays = arrays if bias else arrays[:2]
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    check("Conv", attrs, arrays, run_onnx("Conv", arrays, **attrs))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_a_batch_of_none(op: str) -> None:
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "group": 2}
    attrs |= {"output_padding": (0,)} if op == "ConvTranspose" else {}
    w = np.ones((4, 2, 3) if op == "Conv" else (4, 1, 3), np.float32)
    (y,) = make_op(op, attrs).reference([np.zeros((0, 4, 5), np.float32), w])
    assert y.shape == ((0, 4, 3) if op == "Conv" else (0, 2, 7))


TRANSPOSED = [  # C, M, group, spatial, kernel, strides, pads, dilations, output_padding
    (5, 7, 1, (13,), (3,), (2,), (1, 2), (1,), (1,)),
    (6, 9, 3, (5, 7), (3, 2), (1, 3), (0, 0, 1, 1), (2, 1), (0, 2)),
    (4, 4, 4, (7, 5), (4, 4), (2, 2), (1, 1, 1, 1), (1, 1), (0, 0)),
    (3, 5, 1, (3, 5, 2), (2, 3, 3), (1, 2, 2), (0, 1, 1, 1, 0, 1), (1, 1, 2), (0, 0, 1)),
]


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose_matches_onnxruntime(case: Any) -> None:
    c, m, group, spatial, kernel, strides, pads, dilations, extra = case
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, c, *spatial), (c, m // group, *kernel), (m,))]
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "output_padding": extra}
    check("ConvTranspose", attrs, arrays, run_onnx("ConvTranspose", arrays, **attrs))


def test_negative_pads_crop_a_conv_and_extend_a_transposed_one() -> None:
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 3, 9, 8), (3, 3, 3, 3)))
    one = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    (cropped,) = make_op("Conv", {**one, "pads": (-1, 2, 0, -2)}).reference([x, w])
    (plain,) = make_op("Conv", {**one, "pads": (0, 2, 0, 0)}).reference([x[:, :, 1:, :6], w])
    np.testing.assert_array_equal(cropped, plain)
    base = {**one, "output_padding": (0, 0)}
    (wide,) = make_op("ConvTranspose", {**base, "pads": (-1, 0, 0, -2)}).reference([x, w])
    (full,) = make_op("ConvTranspose", {**base, "pads": (0, 0, 0, 0)}).reference([x, w])
    np.testing.assert_array_equal(wide[:, :, 1:, :-2], full)
    assert not wide[:, :, 0].any()
    assert not wide[..., -2:].any()


POOLS = [  # spatial, kernel, strides, pads, dilations
    ((13,), (3,), (2,), (1, 0), (1,)),
    ((11, 7), (3, 2), (2, 3), (1, 0, 1, 1), (1, 2)),
    ((13, 14), (3, 3), (2, 2), (0, 0, 1, 1), (1, 1)),
    ((8, 9), (2, 2), (3, 3), (1, 1, 1, 1), (1, 1)),
    ((5, 7, 6), (2, 3, 2), (2, 2, 1), (1, 1, 0, 0, 1, 1), (1, 1, 1)),
]


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("kind", ["max", "average", "average+pad", "lp"])
def test_pool_matches_onnxruntime(case: Any, ceil_mode: int, kind: str) -> None:
    spatial, kernel, strides, pads, dilations = case
    x = np.random.default_rng(3).standard_normal((2, 3, *spatial)).astype(np.float32)
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    given = {"kernel_shape": kernel, "ceil_mode": ceil_mode, **window}
    attrs = {"kind": kind.split("+")[0], "kernel": kernel, "ceil_mode": bool(ceil_mode), **window, "p": 3}
    attrs |= {"count_include_pad": "+" in kind, "with_indices": kind == "max", "storage_order": 0}
    if kind == "max":
        want = run_onnx("MaxPool", [x], 2, **given)
    elif kind == "lp":
        want = run_onnx("LpPool", [x], p=3, **given)
    else:
        want = run_onnx("AveragePool", [x], count_include_pad=int("+" in kind), **given)
    check("Pool", attrs, [x], want)


def test_max_pool_indices_column_major() -> None:
    x = np.random.default_rng(4).standard_normal((2, 3, 7, 5)).astype(np.float32)
    given = {"strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 1)}
    want = run_onnx("MaxPool", [x], 2, kernel_shape=(3, 2), storage_order=1, **given)
    attrs = {"kind": "max", "kernel": (3, 2), "ceil_mode": False, "count_include_pad": False, "p": 2, **given}
    check("Pool", {**attrs, "with_indices": True, "storage_order": 1}, [x], want)


def test_max_pool_of_integers() -> None:
    x = np.random.default_rng(5).integers(-128, 0, (1, 2, 7, 5)).astype(np.int8)
    given = {"strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    attrs = {"kind": "max", "kernel": (3, 3), "ceil_mode": False, "count_include_pad": False, "p": 2, **given}
    want = run_onnx("MaxPool", [x], kernel_shape=(3, 3), **given)
    check("Pool", {**attrs, "with_indices": False, "storage_order": 0}, [x], want)


@pytest.mark.parametrize(
    ("change", "shapes", "says"),
    [
        ({}, [(1, 5, 7, 7), (4, 3, 3, 3)], "expect 3 input channels"),
        ({"group": 2}, [(1, 6, 7, 7), (5, 3, 3, 3)], "do not divide into 2 groups"),
        ({"strides": (1,)}, [(1, 3, 7, 7), (4, 3, 3, 3)], "strides must hold 2 numbers"),
        ({"strides": (0, 1)}, [(1, 3, 7, 7), (4, 3, 3, 3)], "strides must be positive"),
        ({}, [(1, 3, 2, 7), (4, 3, 3, 3)], r"spatial size \(0, 5\)"),
        ({}, [(1, 3, 7, 7), (4, 3, 3, 3), (5,)], r"bias must be f32\[4\]"),
        ({}, [(1, 3, 7, 7), (4, 3, 3)], "x's rank 4"),
    ],
)
def test_conv_shape_errors_say_what_was_expected(change: Any, shapes: Any, says: str) -> None:
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1, **change}
    with pytest.raises(ShapeError, match=says):
        make_op("Conv", attrs).check_shape([make_type(DType.FLOAT32, s) for s in shapes])


def test_conv_cost_counts_two_operations_for_each_multiply_add() -> None:
    ins = [make_type(DType.FLOAT32, s) for s in ((1, 8, 10, 10), (16, 4, 3, 3))]
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 2}
    op = make_op("Conv", attrs)
    cost = op.cost(ins, op.infer_shape(ins))
    assert cost.flops == 2 * math.prod((16, 10, 10, 4, 3, 3))
    assert cost.bytes == 4 * (800 + 576 + 1600)
