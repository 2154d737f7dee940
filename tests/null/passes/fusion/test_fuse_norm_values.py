"""Layer normalisation in front of a product: fused where a kernel does both, and equal to the two apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir import DeviceInfo, DType, Graph, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_MMA
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.tensor_type import TensorType
from opalite.layout.assign_precision import set_precision
from opalite.ops.operator import make_op
from opalite.passes.fusion.fuse_norm_matmul import fuse_norm_matmul
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph

H200 = read_description("nvidia_h200")
UNITS = replace(H200, quirks=(PTX_MMA,))
CPU = DeviceInfo(kind="cpu", family="pocl", native_float_width=16, max_work_group_size=4096, fp64=True)


def f32(g: GraphMaker, name: str, array: Any) -> Value:
    return g.const(name, np.asarray(array, np.float32))


def make(rows: int = 197, columns: int = 48, *, between: bool = False, axis: int = 2, factor: float = 1.0) -> Graph:
    """x, normalised over 64 columns with scale and bias, perhaps reshaped, times a constant matrix."""
    g = GraphMaker()
    x = g.input("x", 1, rows, 64)
    scale, bias = f32(g, "scale", g.rng.uniform(0.5, 1.5, 64) * factor), g.noise("bias", 64)
    if axis != 2:
        scale, bias = (f32(g, f"{v.name}2", np.broadcast_to(np.asarray(v.data), (rows, 64))) for v in (scale, bias))
    n = g.add("n", "Normalize", x, scale, bias, kind="layer", axis=axis, epsilon=1e-5)
    v = g.add("r", "Reshape", n, shape=(rows, 64)) if between else n
    y = g.add("y", "MatMul", v, g.noise("w", 64, columns), trans_a=False, trans_b=False)
    return g.done(y)


def fuse(graph: Graph, device: DeviceInfo = UNITS, precision: Precision = Precision.FP16) -> list[str]:
    set_precision(graph, PrecisionPolicy(precision))
    run_rule(graph, "fuse_norm_matmul", fuse_norm_matmul(device), Context(check=True))
    return operators(graph)


@pytest.mark.parametrize("between", [False, True])
def test_a_product_normalises_its_rows(between: bool) -> None:
    graph = make(between=between)
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    assert fuse(graph) == (["Reshape"] if between else []) + ["NormalizedMatMul"]
    check_same(before, run_graph(graph, feeds))


@pytest.mark.parametrize(
    ("graph", "device", "precision"),
    [
        (make(), CPU, Precision.FP16),  # no kernel
        (make(), UNITS, Precision.FP32),
        (make(axis=1), UNITS, Precision.FP16),  # one mean for all rows
        (make(factor=1e-7), UNITS, Precision.FP16),  # scale and matrix together would be subnormal halves
        (make(factor=1e7), UNITS, Precision.FP16),
        (make(rows=7), UNITS, Precision.FP16),  # too few rows for a stage
        (make(rows=200_000, columns=3072), UNITS, Precision.FP16),  # every work-group would look at the same rows anew
    ],
)
def test_what_stays_apart(graph: Graph, device: DeviceInfo, precision: Precision) -> None:
    assert fuse(graph, device, precision) == ["Normalize", "MatMul"]


def test_rows_that_others_read_stay() -> None:
    g = GraphMaker()
    n = g.add("n", "Normalize", g.input("x", 197, 64), kind="layer", axis=1, epsilon=1e-5)
    y = g.add("y", "MatMul", n, g.noise("w", 64, 64), trans_a=False, trans_b=False)
    assert fuse(g.done(g.map("sum", "add", y, n)))[:2] == ["Normalize", "MatMul"]


def test_the_reference_is_a_product_of_normal_rows() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(3, 2, (5, 16)), rng.normal(size=(16, 4))
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": False, "epsilon": 0.25}
    want = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 0.25) @ b
    np.testing.assert_allclose(make_op("NormalizedMatMul", attrs).reference([a, b])[0], want)
    types = [TensorType(DType.FLOAT32, s) for s in ((5, 16), (2, 16, 4))]
    with pytest.raises(ShapeError, match="one matrix"):
        make_op("NormalizedMatMul", attrs).check_shape(types)


@pytest.mark.parametrize("attrs", [{"kind": "instance"}, {"kind": "group", "num_groups": 1}])
def test_other_normalisations_stay(attrs: dict[str, Any]) -> None:
    g = GraphMaker()
    n = g.add("n", "Normalize", g.input("x", 197, 2, 64), g.noise("s", 2), g.noise("b", 2), epsilon=1e-5, **attrs)
    graph = g.done(g.add("y", "MatMul", n, g.noise("w", 64, 64), trans_a=False, trans_b=False))
    assert fuse(graph) == ["Normalize", "MatMul"]
