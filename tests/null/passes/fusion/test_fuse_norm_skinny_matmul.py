"""passes/fusion/fuse_norm_matmul.py: matmuls of few rows normalize the rows they read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.models.llama import LLAMA_TINY, decoder, step_feeds

import onnx
from opalite.errors import ShapeError
from opalite.ir import DeviceInfo, DType, Graph, TensorType, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.growable_tensor import FEW
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.symbols import Trace
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import kernels_for
from opalite.kernels.launch import Weight
from opalite.layout.assign_precision import set_precision
from opalite.ops.operator import make_op
from opalite.passes.fusion.fuse_norm_matmul import fuse_norm_skinny_matmul
from opalite.passes.rewrite_driver import Context, run_rule
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.plan.program import LaunchStep
from opalite.run.model.imported_model import ImportedModel

from ....helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph
from ....helpers.symbolic import Traced
from ..texts import CPU, Case, check

H200 = read_description("nvidia_h200")


def store_halves(graph: Graph) -> None:
    """What comes before the pass; matrix units multiply halves."""
    set_precision(graph, PrecisionPolicy(Precision.FP16))


ONE = """
graph g(%t: f32[1,2048]) {
    const %w: f32[2048,512] = fill 0.5
    const %s: f32[2048] = fill 2.0
    %x: f32[1,2048] @opencl/f16/NCHW = Elementwise(%t) {expr="tanh($0)"}
    %n: f32[1,2048] @opencl/f16/NCHW = Normalize(%x, %s) {axis=1, epsilon=1e-05, kind="rms"}
    %y: f32[1,512] @opencl/f16/NCHW = MatMul(%n, %w) {trans_a=false, trans_b=false}
    return %y
}"""

TWO = """
graph g(%t: f32[1,2048]) {
    const %w: f32[512,2048] = fill 0.5
    const %v: f32[2048,512] = fill 0.25
    const %s: f32[2048] = fill 2.0
    const %b: f32[2048] = fill 1.0
    %x: f32[1,2048] @opencl/f16/NCHW = Elementwise(%t) {expr="tanh($0)"}
    %n: f32[1,2048] @opencl/f16/NCHW = Normalize(%x) {axis=1, epsilon=1e-05, kind="layer"}
    %m: f32[1,2048] @opencl/f16/NCHW = Elementwise(%n, %s, %b) {expr="mul($0, $1); add(%0, $2)"}
    %y: f32[1,512] @opencl/f16/NCHW = MatMul(%m, %w) {trans_a=false, trans_b=true}
    %z: f32[1,512] @opencl/f16/NCHW = MatMul(%m, %v) {trans_a=false, trans_b=false}
    return %y, %z
}"""

CASES = (
    Case(
        "fuse_norm_skinny_matmul",
        "the matrix stays what it is",
        fuse_norm_skinny_matmul(H200),
        ONE,
        """
        graph g(%t: f32[1,2048]) {
            const %w: f32[2048,512] = fill 0.5
            const %s: f32[2048] = fill 2.0
            %x: f32[1,2048] @opencl/f16/NCHW = Elementwise(%t) {expr="tanh($0)"}
            %y: f32[1,512] @opencl/f16/NCHW = RowNormMatMul(%x, %w, %s, -) {epsilon=1e-05, kind="rms", trans_a=false, trans_b=false}
            return %y
        }
        """,  # noqa: E501
        whole=store_halves,
    ),
    Case(
        "fuse_norm_skinny_matmul",
        "all products that read the rows, and what is written out behind the normalisation",
        fuse_norm_skinny_matmul(H200),
        TWO,
        """
        graph g(%t: f32[1,2048]) {
            const %w: f32[512,2048] = fill 0.5
            const %v: f32[2048,512] = fill 0.25
            const %s: f32[2048] = fill 2.0
            const %b: f32[2048] = fill 1.0
            %x: f32[1,2048] @opencl/f16/NCHW = Elementwise(%t) {expr="tanh($0)"}
            %y: f32[1,512] @opencl/f16/NCHW = RowNormMatMul(%x, %w, %s, %b) {epsilon=1e-05, kind="layer", trans_a=false, trans_b=true}
            %z: f32[1,512] @opencl/f16/NCHW = RowNormMatMul(%x, %v, %s, %b) {epsilon=1e-05, kind="layer", trans_a=false, trans_b=false}
            return %y, %z
        }
        """,  # noqa: E501
        whole=store_halves,
    ),
    Case(
        "fuse_norm_skinny_matmul",
        "a processor has no kernel for it",
        fuse_norm_skinny_matmul(CPU),
        ONE,
        whole=store_halves,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


# Which rows and readers


def rows_of(g: GraphMaker, *shape: int) -> Value:
    """Rows that a node before computes, in halves."""
    return g.map("x", "tanh", g.input("t", *shape))


def normal(g: GraphMaker, x: Value, kind: str, parameters: str) -> Value:
    k = x.shape[-1]
    given = [g.noise(f"n.{p}", k) if p in parameters else None for p in "sb"]
    return g.add("n", "Normalize", x, *given, kind=kind, axis=len(x.shape) - 1, epsilon=1e-5)


def product(g: GraphMaker, name: str, rows: Value, columns: int = 256) -> Value:
    w = g.const(f"{name}.w", g.rng.standard_normal((rows.shape[-1], columns)).astype(np.float32))
    return g.add(name, "MatMul", rows, w, trans_a=False, trans_b=False)


def make(kind: str = "rms", parameters: str = "s", readers: int = 1, rows: int = 1, terms: int = 512) -> Graph:
    g = GraphMaker()
    n = normal(g, rows_of(g, 1, rows, terms), kind, parameters)
    return g.done(*(product(g, f"y{i}", n) for i in range(readers)))


def fuse(graph: Graph, device: DeviceInfo = H200, precision: Precision = Precision.FP16) -> list[str]:
    set_precision(graph, PrecisionPolicy(precision))
    run_rule(graph, "fuse_norm_skinny_matmul", fuse_norm_skinny_matmul(device), Context(check=True))
    first, *rest = operators(graph)
    assert first == "Elementwise"
    return rest


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("parameters", ["", "s", "b", "sb"])
@pytest.mark.parametrize("readers, rows", [(1, 1), (2, 1), (3, 4)])
def test_readers_normalise(kind: str, parameters: str, readers: int, rows: int) -> None:
    graph = make(kind, parameters, readers, rows)
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    matrices = [n.input(1) for n in graph.nodes[2:]]
    assert fuse(graph) == ["RowNormMatMul"] * readers
    assert [n.input(1) for n in graph.nodes[1:]] == matrices
    check_same(before, run_graph(graph, feeds))


@pytest.mark.parametrize("text, parameters", [("mul", ""), ("add", ""), ("add", "s")])
def test_what_is_written_out_is_a_parameter(text: str, parameters: str) -> None:
    g = GraphMaker()
    n = normal(g, rows_of(g, 2, 512), "rms", parameters)
    graph = g.done(product(g, "y", g.map("m", text, g.noise("p", 1, 512), n)))
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    assert fuse(graph) == ["RowNormMatMul"]
    check_same(before, run_graph(graph, feeds))


WRITTEN_OUT: dict[str, Callable[[GraphMaker, Value, Value], Value]] = {
    "scaled again": lambda g, n, p: g.map("m", "mul", n, p),
    "subtracted": lambda g, n, p: g.map("m", "sub", n, p),
    "squared": lambda g, n, p: g.map("m", lambda a: a * a, n),
    "a number": lambda g, n, p: g.map("m", lambda a: a * 2.0, n),
    "added before it is scaled": lambda g, n, p: g.map("m", lambda a, b: (a + b) * b, n, p),
    "of other rows": lambda g, n, p: g.map("m", "add", n, g.noise("rows", 2, 512)),
    "of an input": lambda g, n, p: g.map("m", "add", n, g.input("z", 512)),
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_what_else_is_written_out_stays(name: str) -> None:
    g = GraphMaker()
    n = normal(g, rows_of(g, 2, 512), "rms", "s")
    graph = g.done(product(g, "y", WRITTEN_OUT[name](g, n, g.noise("p", 512))))
    assert fuse(graph) == ["Normalize", "Elementwise", "MatMul"]


def read_twice() -> Graph:
    g = GraphMaker()
    n = normal(g, rows_of(g, 1, 512), "rms", "s")
    return g.done(product(g, "y", n), g.map("z", "exp", n))


def exposed() -> Graph:
    g = GraphMaker()
    n = normal(g, rows_of(g, 1, 512), "rms", "s")
    return g.done(product(g, "y", n), n)


def by_an_input() -> Graph:
    g = GraphMaker()
    n = normal(g, rows_of(g, 1, 512), "rms", "s")
    return g.done(g.add("y", "MatMul", n, g.input("w", 512, 64), trans_a=False, trans_b=False))


def scaled_by_an_input() -> Graph:
    g = GraphMaker()
    n = g.add("n", "Normalize", rows_of(g, 1, 512), g.input("s", 512), kind="rms", axis=1, epsilon=1e-5)
    return g.done(product(g, "y", n))


def over_two_axes() -> Graph:
    g = GraphMaker()
    n = g.add("n", "Normalize", rows_of(g, 2, 512), kind="layer", axis=0, epsilon=1e-5)
    return g.done(product(g, "y", n))


def by_channels() -> Graph:
    g = GraphMaker()
    x, s, b = rows_of(g, 1, 2, 512), g.noise("s", 2), g.noise("b", 2)
    return g.done(product(g, "y", g.add("n", "Normalize", x, s, b, kind="instance", epsilon=1e-5)))


@pytest.mark.parametrize(
    "graph",
    [
        make(rows=FEW + 1),
        make(rows=FEW, terms=2048),  # more than local memory holds
        make(terms=16384),  # more than a work-item keeps
        make(terms=510),
        read_twice(),
        exposed(),
        by_an_input(),
        scaled_by_an_input(),
        over_two_axes(),
        by_channels(),
    ],
)
def test_what_stays_apart(graph: Graph) -> None:
    before = operators(graph)
    assert fuse(graph) == before[1:]


def test_only_halves_are_normalised() -> None:
    assert fuse(make(), precision=Precision.FP32) == ["Normalize", "MatMul"]


def test_what_takes_longer_stays_apart() -> None:
    """Many products, whose groups would all normalise many rows."""
    g = GraphMaker()
    n, w = normal(g, rows_of(g, FEW, 512), "layer", "sb"), g.noise("w", 512, 2112)
    products = [g.add(f"y{i}", "MatMul", n, w, trans_a=False, trans_b=False) for i in range(24)]
    assert fuse(g.done(*products)) == ["Normalize", *["MatMul"] * 24]


# The operator


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_the_reference_is_a_product_of_normal_rows(kind: str) -> None:
    rng = np.random.default_rng(0)
    a, b, scale, bias = rng.normal(3, 2, (5, 16)), rng.normal(size=(16, 4)), rng.normal(size=16), rng.normal(size=16)
    centered = a - a.mean(1, keepdims=True) if kind == "layer" else a
    rows = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 0.25) * scale + bias
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": False, "epsilon": 0.25, "kind": kind}
    np.testing.assert_allclose(make_op("RowNormMatMul", attrs).reference([a, b, scale, bias])[0], rows @ b)


@pytest.mark.parametrize(
    "shapes, more, message",
    [
        (((5, 16), (2, 16, 4)), {}, "one matrix"),
        (((16, 5), (16, 4)), {"trans_a": True}, "by rows"),
        (((5, 16), (16, 4)), {"kind": "group"}, "kind must be one of layer, rms"),
        (((5, 16), (16, 4), (5, 1)), {}, "scale must broadcast"),
    ],
)
def test_what_does_not_fit_is_an_error(shapes: Any, more: dict[str, Any], message: str) -> None:
    attrs = {"trans_a": False, "trans_b": False, "epsilon": 0.25, "kind": "rms", **more}
    with pytest.raises(ShapeError, match=message):
        make_op("RowNormMatMul", attrs).check_shape([TensorType(DType.FLOAT32, s) for s in shapes])


# The kernel


def weights_of(op: str, rows: int, more: dict[str, Any], *parameters: Any) -> str:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((rows, 2048), (2048, 512)))
    const = [1, *(i for i, p in enumerate(parameters, 2) if p is not None)]
    attrs = {"trans_a": False, "trans_b": False, **more}
    node = make_node(op, attrs, [a, b, *parameters], const=const, precision=DType.FLOAT16)
    kernel = next(k for k in kernels_for(op) if "SkinnyMma" in k.name)
    problem = kernel.problem(node, H200)
    assert kernel.refuse(problem) is None
    weight = kernel.launch(problem, kernel.defaults(problem))[0].args["weights"]
    assert isinstance(weight, Weight)
    return weight.form


def test_weights_are_those_of_the_plain_product() -> None:
    scale = np.ones(2048, np.float32)
    assert weights_of("RowNormMatMul", 1, {"kind": "rms", "epsilon": 1e-5}, scale) == weights_of("MatMul", 1, {})


def test_a_scale_that_is_computed_is_refused() -> None:
    attrs = {"trans_a": False, "trans_b": False, "kind": "rms", "epsilon": 1e-5}
    arrays = [np.zeros(s, np.float32) for s in ((1, 64), (64, 32), (64,))]
    node = make_node("RowNormMatMul", attrs, arrays, const=(1,), precision=DType.FLOAT16)
    (kernel,) = kernels_for("RowNormMatMul")
    assert "not constant" in (kernel.refuse(kernel.problem(node, H200)) or "")


# Plans


@pytest.mark.parametrize("cache", ["concat", "grouped"])
@pytest.mark.parametrize("new, kernel", [(1, "NormMatmulSkinnyMma"), (32, "NormalizeRows")])
def test_a_step_of_a_decoder_launches_no_normalisation(cache: str, new: int, kernel: str, tmp_path: Path) -> None:
    shape = replace(LLAMA_TINY, width=512, inner=1024)
    onnx.save(decoder(shape, cache=cache, drawn=10_000), tmp_path / "decoder.onnx")
    segment = ImportedModel(tmp_path / "decoder.onnx").fresh().only_segment(step_feeds(shape, 16, new, cache=cache))
    options = PlanOptions(policy=PrecisionPolicy.named("fp16"))
    steps = plan(segment.graph, options, Knowledge(H200)).program.steps
    found = [s.kernel for s in steps if isinstance(s, LaunchStep)]
    assert found.count(kernel) == (5 * shape.layers + 1 if new == 1 else 2 * shape.layers + 1)
    assert len({"NormalizeRows", "NormMatmulSkinnyMma"}.intersection(found)) == 1


def test_a_plan_for_few_rows_serves_no_prompt() -> None:
    trace = Trace()
    g = GraphMaker()
    n = normal(g, rows_of(g, trace.symbol(3, "rows"), 512), "rms", "s")
    graph = g.done(product(g, "y", n), product(g, "z", n))
    graph.trace = trace
    traced = Traced(graph.copy(), H200, Precision.FP16)
    assert operators(traced.graph).count("RowNormMatMul") == 2
    for rows in (2, 5, FEW):
        assert traced.check((rows,)) is not None
    assert traced.check((FEW + 1,)) is None
