"""Quantised products: what they become on devices with and without dot products of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.ir import DeviceInfo, DType, Graph, Value
from opalite.ir.device.device_family import PTX_DOT, PTX_MMA
from opalite.ir.graph import QuantizedConstant
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.kernels.kernel import kernels_for
from opalite.kernels.kernel_sources import option_text
from opalite.layout.assign_precision import set_precision
from opalite.ops.affine_quantization import dequantized, quantized
from opalite.ops.conv import Conv
from opalite.passes.pipeline import optimise, place
from opalite.passes.rewrite_driver import Context

from ....helpers.graphs import GraphMaker, operators, run_graph

GPU = DeviceInfo(kind="gpu", wave_size=32, max_work_group_size=256, max_work_item_sizes=(256, 256, 64), compute_units=8)
DOT = DeviceInfo(**{**GPU.__dict__, "extensions": ("cl_khr_integer_dot_product",)})
UNITS = DeviceInfo(**{**GPU.__dict__, "quirks": (PTX_DOT, PTX_MMA)})
WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}


def integers(g: GraphMaker, name: str, kind: str, *shape: int, kept: str = "") -> Value:
    ends = np.iinfo(kind)
    return g.const(name, g.rng.integers(ends.min, ends.max + 1, shape).astype(kept or kind))


def dequantised(g: GraphMaker, name: str, q: Value, scale: float, zero: int) -> Value:
    parameters = g.const(f"{name}.s", np.float32(scale)), g.const(f"{name}.z", np.asarray(zero, q.dtype.np))
    return g.map(name, lambda a, s, z: dequantized(a, s, z), q, *parameters)


def dequantised_constant(g: GraphMaker, name: str, q: Value, scale: Any, zero: Any = None) -> Value:
    assert q.data is not None
    less = q.data.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))
    v = g.const(name, less * np.asarray(scale, np.float32))
    v.quantized = QuantizedConstant(q.data, np.asarray(scale, np.float32), zero)
    return v


def requantised(g: GraphMaker, name: str, v: Value, scale: float, zero: int) -> Value:
    parameters = g.const(f"{name}.s", np.float32(scale)), g.const(f"{name}.z", np.uint8(zero))
    return g.map(name, lambda a, s, z: quantized(a / s, z, DType.UINT8), v, *parameters)


def qdq(group: int = 1, mean: int = 0) -> Graph:
    """Two quantised convolutions and a residual addition between dequantising and quantising."""
    g = GraphMaker()
    x = g.input("x", 1, 8, 5, 5, dtype=DType.UINT8)
    real = dequantised(g, "dx", x, 0.02, 128)
    scale = (g.rng.uniform(0.5, 1, (8, 1, 1, 1)) * 1e-3).astype(np.float32)
    w = dequantised_constant(g, "w", integers(g, "wq", "i1", 8, 8 // group, 3, 3), scale)
    b = dequantised_constant(g, "b", integers(g, "bq", "i2", 8, kept="i4"), 0.02 * scale.reshape(-1) * (1 + mean))
    first = requantised(g, "q1", g.add("c1", "Conv", real, w, b, group=group, **WINDOW), 0.02, 100)
    again = dequantised(g, "d1", first, 0.02, 100)
    second = g.add("c2", "Conv", again, w, b, group=group, **WINDOW)
    total = g.map("sum", "add", second, real)
    return g.done(requantised(g, "q2", total, 0.03, 90))


def qlinear(zeros: str) -> Graph:
    g = GraphMaker()
    x = g.input("x", 1, 8, 5, 5, dtype=DType.UINT8)
    w = integers(g, "w", "u1", 6, 8, 3, 3)
    w_zero = {"": None, "one": g.const("z", np.uint8(128)), "each": integers(g, "zs", "u1", 6)}[zeros]
    attrs = {**WINDOW, "group": 1}
    acc = g.add(
        "c",
        "IntegerConv",
        x,
        w,
        g.const("b", np.arange(6, dtype=np.int32)),
        g.const("xz", np.uint8(3)),
        w_zero,
        **attrs,
    )
    scale = g.const("s", np.float32(1e-3))
    return g.done(g.map("q", lambda a, s: quantized(a.cast(DType.FLOAT32) * s, None, DType.UINT8), acc, scale))


def feeds(graph: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {v.name: rng.integers(0, 256, v.shape).astype(v.dtype.np) for v in graph.inputs}


def check_steps(graph: Graph, before: list[Any]) -> None:
    """Integers may differ by one where the order of float operations changed a rounding, and seldom."""
    for a, b in zip(before, run_graph(graph, feeds(graph)), strict=True):
        off = np.abs(a.astype(int) - b.astype(int))
        assert off.max() <= 1
        assert (off > 0).mean() < 0.02


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("mean", [0, 1])
def test_dequantised_convolutions_become_integers(group: int, mean: int) -> None:
    graph = qdq(group, mean)
    optimise(graph, Context(check=True), DOT)
    place(graph, DOT, ctx=Context(check=True))
    found = [n for n in operators(graph) if n != "PlaceCast"]
    assert found == ["IntegerConv", "IntegerConv"]
    # A bias with the scale of the sums is an integer; any other is added to the scaled sums.
    assert [n.get(2) is None for n in graph.nodes if n.op.name == "IntegerConv"] == [bool(mean)] * 2


def test_integers_keep_what_is_computed() -> None:
    graph = qdq()
    before = run_graph(graph, feeds(graph))
    optimise(graph, Context(check=True), DOT)
    assert "Conv" not in operators(graph)
    check_steps(graph, before)


@pytest.mark.parametrize("columns", [5, 8])
def test_a_computed_bias_is_added_by_channel(columns: int) -> None:
    """Also where there are as many columns as channels, so that it would broadcast along them as well."""
    g = GraphMaker()
    x = dequantised(g, "dx", g.input("x", 1, 8, 3, columns, dtype=DType.UINT8), 0.02, 128)
    w = dequantised_constant(g, "w", integers(g, "wq", "i1", 8, 8, 3, 3), 1e-3)
    b = g.input("b", 8)
    graph = g.done(g.add("c", "Conv", x, w, b, group=1, **WINDOW))
    given = feeds(graph) | {"b": np.arange(8, dtype=np.float32)}
    before = run_graph(graph, given)
    optimise(graph, Context(check=True), DOT)
    assert "IntegerConv" in operators(graph)
    for want, got in zip(before, run_graph(graph, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def test_a_large_bias_is_added_as_a_float() -> None:
    """Its integers and the sums together would exceed 32 bits."""
    g = GraphMaker()
    x = dequantised(g, "dx", g.input("x", 1, 8, 5, 5, dtype=DType.UINT8), 1e-3, 0)
    w = dequantised_constant(g, "w", g.const("wq", np.full((8, 8, 3, 3), 127, np.int8)), 1e-3)
    b = dequantised_constant(g, "b", g.const("bq", np.full(8, 2**31 - 9, np.int32)), 1e-6)
    graph = g.done(g.add("c", "Conv", x, w, b, group=1, **WINDOW))
    before = run_graph(graph, feeds(graph))
    optimise(graph, Context(check=True), DOT)
    assert "IntegerConv" in operators(graph)
    for want, got in zip(before, run_graph(graph, feeds(graph)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("device", [None, GPU, DeviceInfo(kind="cpu", extensions=("cl_khr_integer_dot_product",))])
def test_floats_stay_without_dot_products(device: DeviceInfo | None) -> None:
    graph = qdq()
    optimise(graph, Context(check=True), device)
    assert operators(graph).count("Conv") == 2


def test_floats_stay_where_matrix_units_multiply_halves() -> None:
    for precision, op in ((Precision.FP16, "Conv"), (Precision.FP32, "IntegerConv")):
        graph = qdq()
        optimise(graph, Context(check=True), UNITS, PrecisionPolicy(precision))
        assert operators(graph).count(op) == 2


def test_floats_stay_where_sums_may_exceed_32_bits() -> None:
    g = GraphMaker()
    x = dequantised(g, "dx", g.input("x", 1, 70000, dtype=DType.UINT8), 0.02, 0)
    w = dequantised_constant(g, "w", g.const("wq", np.full((70000, 2), 127, np.int8)), 1e-3)
    graph = g.done(g.add("m", "MatMul", x, w, trans_a=False, trans_b=False))
    optimise(graph, Context(check=True), DOT)
    assert "QuantizedMatMul" in operators(graph)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_products_become_integers(trans: bool, zeros: bool) -> None:
    g = GraphMaker()
    x = dequantised(g, "dx", g.input("x", 3, 16, dtype=DType.INT8), 0.02, -5)
    along = (6, 1) if trans else (1, 6)
    scale = g.rng.uniform(0.5, 1, along).astype(np.float32)
    zero = g.rng.integers(-9, 9, along).astype(np.int8) if zeros else None
    w = dequantised_constant(g, "w", integers(g, "wq", "i1", *((6, 16) if trans else (16, 6))), scale, zero)
    graph = g.done(requantised(g, "q", g.add("m", "MatMul", x, w, trans_a=False, trans_b=trans), 5.0, 100))
    before = run_graph(graph, feeds(graph))
    optimise(graph, Context(check=True), DOT)
    assert "IntegerMatMul" in operators(graph)
    check_steps(graph, before)


@pytest.mark.parametrize("zeros", ["", "one", "each"])
@pytest.mark.parametrize(("device", "op"), [(DOT, "IntegerConv"), (GPU, "Conv"), (None, "Conv")])
def test_integer_convolutions_are_kept_or_widened(zeros: str, device: DeviceInfo | None, op: str) -> None:
    graph = qlinear(zeros)
    before = run_graph(graph, feeds(graph))
    optimise(graph, Context(check=True), device)
    made = [n for n in graph.nodes if n.op.name in ("Conv", "IntegerConv")]
    assert [n.op.name for n in made] == [op]
    if op == "IntegerConv":
        # 128 off uint8 leaves int8; zero points anywhere leave nine bits.
        assert (made[0].get(4) is None) == (zeros != "each")
        assert made[0].input(1).dtype is (DType.INT8 if zeros == "one" else DType.UINT8)
    for a, b in zip(before, run_graph(graph, feeds(graph)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("largest", "dtype"), [(1, DType.FLOAT32), (127, DType.INT32)])
def test_sums_are_of_floats_where_those_are_exact(largest: int, dtype: DType) -> None:
    """600 products of 255 with 127 exceed 2^24, beyond which not every whole number is a float."""
    g = GraphMaker()
    x = g.input("x", 1, 600, 3, 3, dtype=DType.UINT8)
    w = g.const("w", g.rng.choice(np.array([-largest, largest], np.int8), (4, 600, 1, 1)))
    bias = g.const("b", np.array([3, -4, 5, 1 << 20], np.int32))
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    graph = g.done(g.add("c", "IntegerConv", x, w, bias, g.const("xz", np.uint8(7)), None, **window))
    before = run_graph(graph, feeds(graph))
    optimise(graph, Context(check=True), GPU)
    conv = next(n for n in graph.nodes if n.op.name == "Conv")
    assert conv.y.dtype is dtype
    assert conv.as_(Conv).exact is (dtype is DType.FLOAT32)
    for a, b in zip(before, run_graph(graph, feeds(graph)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_exact_sums_take_no_transformed_filters_and_no_halves() -> None:
    """Winograd's filters are fractions, and a half holds whole numbers up to 2048 only."""
    g = GraphMaker()
    x = g.input("x", 1, 32, 24, 24, dtype=DType.UINT8)
    conv = g.add("c", "IntegerConv", x, integers(g, "w", "i1", 32, 32, 3, 3), None, None, None, group=1, **WINDOW)
    graph = g.done(conv)
    cpu = DeviceInfo(kind="cpu", native_float_width=16, fp16=True)
    policy = PrecisionPolicy(Precision.FP16)
    optimise(graph, Context(check=True), cpu, policy)
    made = next(n for n in graph.nodes if n.op.name == "Conv")
    set_precision(graph, policy)
    assert made.precision is Precision.FP32
    winograd = next(k for k in kernels_for("Conv") if k.name == "ConvWinograd")
    assert "exact" in str(winograd.refuse(winograd.problem(made, cpu)))


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
def test_the_maximum_of_bytes_is_one_of_floats(dtype: DType) -> None:
    g = GraphMaker()
    x = g.input("x", 1, 3, 5, 5, dtype=dtype)
    attrs = {"kernel": (3, 3), "ceil_mode": False, "count_include_pad": False, "p": 2, "with_indices": False}
    graph = g.done(g.add("p", "Pool", x, kind="max", storage_order=0, **attrs, **WINDOW))
    before = run_graph(graph, feeds(graph))
    optimise(graph, Context(check=True), GPU)
    assert next(n for n in graph.nodes if n.op.name == "Pool").x.dtype is DType.FLOAT32
    for a, b in zip(before, run_graph(graph, feeds(graph)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dot_products_of_the_extension_are_compiled_as_opencl_3() -> None:
    assert option_text({"DOT": 1, "B": True}) == "-DB=1 -DDOT=1 -cl-std=CL3.0"
    assert option_text({"DOT": 2}) == "-DDOT=2"
