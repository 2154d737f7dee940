"""passes/fusion/fuse_norm_matmul.py: quantized matmuls normalize the few rows they read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.models.llama import LLAMA_TINY, Shape, decoder

from opalite.errors import ShapeError
from opalite.ir import DeviceInfo, DType, Graph, TensorType, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_MMA, PTX_WGMMA
from opalite.ir.growable_tensor import FEW
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import kernels_for
from opalite.kernels.launch import Weight
from opalite.layout.assign_precision import set_precision
from opalite.ops.operator import make_op
from opalite.passes.fusion.fuse_norm_matmul import fuse_norm_skinny_matmul
from opalite.passes.rewrite_driver import Context, run_rule
from opalite.plan.program import LaunchStep
from opalite.run.model.imported_model import ImportedModel
from tests.helpers.device_plans import plan

from ....helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph

PLAIN = read_description("nvidia_h200")
H200 = replace(PLAIN, quirks=tuple({*PLAIN.quirks, PTX_MMA, PTX_WGMMA}))
QUANTIZED: dict[str, Any] = {"trans_a": False, "trans_b": True, "block": 32}
NORMAL: dict[str, Any] = {**QUANTIZED, "bits": 4, "kind": "rms", "epsilon": 0.25}


def normal(g: GraphMaker, rows: int, terms: int, kind: str = "rms", parameters: str = "s") -> Value:
    x = g.map("x", "tanh", g.input("t", 1, rows, terms))
    given = [g.noise(f"n.{p}", terms) if p in parameters else None for p in "sb"]
    return g.add("n", "Normalize", x, *given, kind=kind, axis=2, epsilon=1e-5)


def quantized(
    g: GraphMaker, name: str, rows: Value, *, bits: int = 4, zeros: bool = True, given: bool = False
) -> Value:
    """given: the matrix is an input of the graph."""
    k = rows.shape[-1]
    levels = g.rng.integers(0, 1 << bits, (256, k)).astype(np.uint8)
    w = g.input(f"{name}.w", 256, k, dtype=DType.UINT8) if given else g.const(f"{name}.w", levels)
    scale = g.const(f"{name}.s", g.rng.uniform(0.01, 0.02, (256, -(-k // 32))).astype(np.float32))
    zero = g.const(f"{name}.z", np.full(scale.shape, 1 << (bits - 1), np.uint8)) if zeros else None
    return g.add(name, "QuantizedMatMul", rows, w, scale, zero, **QUANTIZED, bits=bits)


def make(rows: int = 1, terms: int = 512, kind: str = "rms", parameters: str = "s", **more: Any) -> Graph:
    g = GraphMaker()
    n = normal(g, rows, terms, kind, parameters)
    return g.done(*(quantized(g, f"y{i}", n, **more) for i in range(2)))


def fuse(graph: Graph, device: DeviceInfo = H200, precision: Precision = Precision.FP16) -> list[str]:
    set_precision(graph, PrecisionPolicy(precision))
    run_rule(graph, "fuse_norm_skinny_matmul", fuse_norm_skinny_matmul(device), Context(check=True))
    return operators(graph)[1:]


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("parameters", ["", "s", "b", "sb"])
@pytest.mark.parametrize("rows, bits, zeros", [(1, 4, True), (2, 8, False), (FEW, 4, False)])
def test_readers_normalise(kind: str, parameters: str, rows: int, bits: int, zeros: bool) -> None:
    graph = make(rows, 512, kind, parameters, bits=bits, zeros=zeros)
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    held = [n.inputs[1:4] for n in graph.nodes[2:]]
    assert fuse(graph) == ["RowNormQuantizedMatMul"] * 2
    assert [n.inputs[1:4] for n in graph.nodes[1:]] == held
    check_same(before, run_graph(graph, feeds))


def test_products_of_both_kinds_normalise() -> None:
    g = GraphMaker()
    n = normal(g, 1, 512)
    y = g.add("y", "MatMul", n, g.noise("w", 512, 256), trans_a=False, trans_b=False)
    graph = g.done(y, quantized(g, "z", n))
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    assert fuse(graph) == ["RowNormMatMul", "RowNormQuantizedMatMul"]
    check_same(before, run_graph(graph, feeds))


@pytest.mark.parametrize(
    "graph",
    [
        make(rows=FEW + 1),
        make(rows=FEW, terms=2048),  # more than local memory holds
        make(terms=20480, parameters="sb"),  # more than a work-item keeps
        make(terms=508),
        make(bits=2),
        make(given=True),
    ],
)
def test_what_stays_apart(graph: Graph) -> None:
    assert fuse(graph) == ["Normalize"] + ["QuantizedMatMul"] * 2


def test_only_halves_are_normalised_and_by_matrix_units() -> None:
    assert fuse(make(), precision=Precision.FP32)[0] == "Normalize"
    without = replace(H200, quirks=tuple(q for q in H200.quirks if q != PTX_MMA))
    assert fuse(make(), without)[0] == "Normalize"


# The operator


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_the_reference_is_a_product_of_normal_rows(kind: str) -> None:
    rng = np.random.default_rng(0)
    a, row_scale, row_bias = rng.normal(3, 2, (5, 64)), rng.normal(size=64), rng.normal(size=64)
    q, scale, zero = (
        rng.integers(0, 16, (4, 64)).astype(np.uint8),
        rng.normal(size=(4, 2)),
        np.full((4, 2), 7, np.uint8),
    )
    centered = a - a.mean(1, keepdims=True) if kind == "layer" else a
    rows = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 0.25) * row_scale + row_bias
    real = (q - 7.0) * np.repeat(scale, 32, axis=1)
    op = make_op("RowNormQuantizedMatMul", {**NORMAL, "kind": kind})
    (got,) = op.reference([a, q, scale, zero, row_scale, row_bias])
    np.testing.assert_allclose(got, rows @ real.T)


@pytest.mark.parametrize(
    "scale, row_scale, more, message",
    [
        ((4, 2), (64,), {"trans_a": True}, "by rows"),
        ((4, 2), (64,), {"kind": "group"}, "kind must be one of layer, rms"),
        ((4, 2), (5, 1), {}, "scale must broadcast"),
        ((4, 3), (64,), {}, "scales for 4 rows"),
    ],
)
def test_what_does_not_fit_is_an_error(scale: Any, row_scale: Any, more: dict[str, Any], message: str) -> None:
    f32 = DType.FLOAT32
    types = [TensorType(f32, (5, 64)), TensorType(DType.UINT8, (4, 64)), TensorType(f32, scale), None]
    with pytest.raises(ShapeError, match=message):
        make_op("RowNormQuantizedMatMul", {**NORMAL, **more}).check_shape([*types, TensorType(f32, row_scale)])


# The kernel


def weights_of(op: str, attrs: dict[str, Any], *parameters: Any) -> set[str]:
    """Forms of the matrix, its scales and zero points."""
    zero = np.broadcast_to(np.float32(0), (512, 64))
    a, b = np.zeros((1, 2048), np.float32), np.broadcast_to(np.uint8(0), (512, 2048))
    arrays = [a, b, zero, zero.astype(np.uint8), *parameters]
    node = make_node(op, attrs, arrays, const=range(1, len(arrays)), precision=DType.FLOAT16)
    kernel = next(k for k in kernels_for(op) if "SkinnyMma" in k.name)
    problem = kernel.problem(node, H200)
    assert kernel.refuse(problem) is None
    (launch,) = kernel.launch(problem, kernel.defaults(problem))
    return {f"{n} {w.form}" for n, w in launch.args.items() if isinstance(w, Weight) and not n.startswith("row_")}


def test_weights_are_those_of_the_plain_product() -> None:
    plain = weights_of("QuantizedMatMul", {**QUANTIZED, "bits": 4})
    assert len(plain) == 3
    assert weights_of("RowNormQuantizedMatMul", NORMAL, np.ones(2048, np.float32)) == plain


def test_a_scale_that_is_computed_is_refused() -> None:
    arrays: list[Any] = [np.zeros((1, 64), np.float32), np.zeros((32, 64), np.uint8), np.zeros((32, 2), np.float32)]
    arrays += [None, np.zeros(64, np.float32)]
    node = make_node("RowNormQuantizedMatMul", NORMAL, arrays, const=(1, 2), precision=DType.FLOAT16)
    (kernel,) = kernels_for("RowNormQuantizedMatMul")
    assert "not constant" in (kernel.refuse(kernel.problem(node, H200)) or "")


# Plans


def kernels_of(shape: Shape, rows: int) -> list[str]:
    model = decoder(shape, bits=4, drawn=10_000)
    past = (1, shape.kv_heads, 16, shape.head)
    names = [i.name for i in model.graph.input]
    sizes = {n: past if "past" in n else (1, 16 + rows) if "mask" in n else (1, rows) for n in names}
    steps = plan(ImportedModel(model.SerializeToString()), sizes, H200).steps
    return [s.kernel for s in steps if isinstance(s, LaunchStep)]


@pytest.mark.parametrize("width, rows", [(768, 1), (768, 5), (768, 16), (2048, 1), (2048, 2), (2048, 8)])
def test_a_step_of_a_decoder_launches_no_normalisation(width: int, rows: int) -> None:
    shape = replace(LLAMA_TINY, layers=1, width=width, heads=width // 64, kv_heads=2, inner=2 * width)
    found = kernels_of(shape, rows)
    assert "NormalizeRows" not in found
    assert found.count("QuantizedNormSkinnyMma") == 6
    assert found.count("QuantizedSkinnyMma") == 2


def test_a_prompt_is_normalised_apart() -> None:
    found = kernels_of(replace(LLAMA_TINY, width=512, inner=1024), 64)
    assert found.count("NormalizeRows") == 5
    assert "QuantizedNormSkinnyMma" not in found
