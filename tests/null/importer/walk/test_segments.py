"""Segments: splits of a model, transferred and cached values, and models of one segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ModelError, ShapeError, UnsupportedOpError
from opalite.importer import ImportRun, load_model
from opalite.importer.host.onnx_reference import run_host
from opalite.importer.walk import node_context, segments
from opalite.importer.walk.constant_evaluation import evaluate_graph
from opalite.importer.walk.node_context import NodeContext, Trimmed, find_handler, onnx_op
from opalite.ir import DType, TensorType, Value
from opalite.ops.host import HostOp

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime, by_reference, parse

RNG = np.random.default_rng(11)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def no_bodies(importer: Any, feeds: Any) -> Any:
    raise AssertionError("no loop here")


class OnDevice:
    """An array on a device; transfers are counted."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype, self.fetched = array, array.shape, array.dtype, 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.fetched += 1
        return self.array


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations of a test end with it: keys of cached plans include registered code."""
    node_context.load_handlers()
    handlers = {op: dict(versions) for op, versions in node_context._HANDLERS.items()}
    monkeypatch.setattr(node_context, "_HANDLERS", handlers)


RESHAPE = """
g (float[N, M] x, int64[2] shape) => (float[A, B] y) {
    two = Constant <value = int64 {2}> ()
    half = Div(shape, two)
    z = Relu(x)
    y = Reshape(z, half)
}
"""


def test_small_computed_shapes_need_no_cut() -> None:
    session = NumpySession(parse(RESHAPE))
    x = f32(4, 6)
    feeds = {"x": x, "shape": np.asarray([16, 6], np.int64)}
    assert_same(session.run(feeds), [np.maximum(x, 0).reshape(8, 3)])
    assert session.segments == 1


def test_segments_are_told_apart_by_the_contents_that_shapes_depend_on() -> None:
    session = NumpySession(parse(RESHAPE))
    x = f32(4, 6)
    for shape in ([16, 6], [48, 2], [17, 7], [16, 6]):
        session.run({"x": x, "shape": np.asarray(shape, np.int64)})
    assert len(session.imported) == 2, "[17, 7] halves to the same shape as [16, 6]"


def test_what_decides_shapes_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe's outputs are reused while its inputs are equal; changes to an output do not affect the next run."""
    evaluated: list[int] = []

    def evaluate(graph: Any, inputs: Any) -> Any:
        evaluated.append(len(inputs))
        return evaluate_graph(graph, inputs)

    monkeypatch.setattr(segments, "evaluate_graph", evaluate)
    text = RESHAPE.replace("(float[A, B] y)", "(float[A, B] y, int64[2] half)")
    session = NumpySession(parse(text))
    x = f32(4, 6)
    for shape, half, times in (([16, 6], [8, 3], 1), ([16, 6], [8, 3], 1), ([48, 2], [24, 1], 2), ([16, 6], [8, 3], 3)):
        y, found = session.run({"x": x, "shape": np.asarray(shape, np.int64)})
        assert y.shape == tuple(half)
        assert found.tolist() == half
        assert len(evaluated) == times
        found[:] = 0
    monkeypatch.setattr(segments, "PROBE_BYTES", 8)
    session.run({"x": x, "shape": np.asarray([16, 6], np.int64)})
    assert len(evaluated) == 4


def test_other_contents_of_equal_shape_meet_the_same_segment() -> None:
    session = NumpySession(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"), symbols=False)
    for _ in range(3):
        session.run({"x": f32(4)})
    session.run({"x": f32(5)})
    assert len(session.imported) == 2


def test_a_stage_keeps_few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENTS_KEPT", 2)
    session = NumpySession(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"), symbols=False)
    for n in (1, 2, 1, 3, 1):
        session.run({"x": f32(n)})
    assert len(session.imported) == 3, "1 was used last when 3 came"
    session.run({"x": f32(2)})
    assert len(session.imported) == 4


TRIM = """
g (float[N, M] x) => (float[K] y, float[N, M] w, int64[2, K] where) {
    r = Relu(x)
    where = NonZero(r)
    index = Transpose(where)
    picked = GatherND(x, index)
    y = Neg(picked)
    w = Exp(x)
}
"""


def test_data_dependent_shapes_cut_the_model() -> None:
    model = parse(TRIM)
    x = f32(5, 7)
    session = NumpySession(model)
    assert_same(session.run({"x": x}), by_onnxruntime(model, {"x": x}))
    assert session.segments == 2
    assert [t.label for t in session.tasks] == ["NonZero node 'where'"]


def test_only_what_the_host_reads_is_fetched() -> None:
    model = load_model(parse(TRIM))
    x = OnDevice(f32(5, 7))
    run_ = ImportRun(model.importer, {"x": x}, no_bodies)
    first = run_.segment
    assert first is not None
    assert not x.fetched
    by_name = {v.name: host for v, host in zip(first.graph.outputs, first.on_host, strict=True)}
    assert by_name == {"w": True, "r": True}, "r is NonZero's input; w an output of the model"
    run_.advance(evaluate_graph(first.graph, [x.array]))
    second = run_.segment
    assert second is not None
    assert run_.feeds[second.inputs.index("x")] is x, "x crosses the cut untouched"
    run_.advance(evaluate_graph(second.graph, [np.asarray(v) for v in run_.feeds]))
    assert run_.segment is None
    assert [v.dtype for v in run_.outputs] == [np.float32, np.float32, np.int64]


def test_constants_have_known_positions() -> None:
    model = parse("""
        g (float[N] x) => (float[K] y) {
            mask = Constant <value = float[4] {1.0, 0.0, 2.0, 3.0}> ()
            where = NonZero(mask)
            flat = Constant <value = int64[1] {-1}> ()
            index = Reshape(where, flat)
            y = Gather(x, index)
        }
    """)
    session = NumpySession(model)
    x = f32(4)
    assert_same(session.run({"x": x}), [x[[0, 2, 3]]])
    assert session.segments == 1


def test_two_cuts_in_a_row() -> None:
    model = parse("""
        g (float[N] x) => (float[K] y) {
            flat = Constant <value = int64[1] {-1}> ()
            a = NonZero(x)
            b = Reshape(a, flat)
            picked = Gather(x, b)
            sign = Sign(picked)
            up = Relu(sign)
            c = NonZero(up)
            d = Reshape(c, flat)
            y = Gather(picked, d)
        }
    """)
    x = f32(9)
    x[3] = 0
    session = NumpySession(model)
    assert_same(session.run({"x": x}), by_onnxruntime(model, {"x": x}))
    assert session.segments == 2, "the first NonZero reads an input, so nothing has to be computed before it"
    assert len(session.tasks) == 2


def test_types_alone_serve_while_no_contents_are_needed() -> None:
    model = load_model(parse(RESHAPE))
    feeds: dict[str, Any] = {"x": TensorType(DType.FLOAT32, (4, 6)), "shape": TensorType(DType.INT64, (2,))}
    with pytest.raises(ShapeError, match="depend on the contents of 'shape'"):
        ImportRun(model.importer, feeds, no_bodies)
    run_ = ImportRun(model.importer, {**feeds, "shape": np.asarray([16, 6], np.int64)}, no_bodies)
    assert run_.segment is not None
    assert run_.segment.graph.outputs[0].shape == (8, 3)


def test_values_keep_the_names_of_the_model() -> None:
    model = load_model(parse("g (float[N] x) => (float[N] y) { a = Neg(x) b = Identity(a) y = Exp(b) }"))
    run_ = ImportRun(model.importer, {"x": f32(3)}, no_bodies)
    assert run_.segment is not None
    assert [[o.name for o in n.outputs] for n in run_.segment.graph.nodes] == [["a"], ["y"]]


def test_large_expansions_stay_symbolic_until_asked_for() -> None:
    model = load_model(
        parse("""
            g (float[1] x) => (float[N] y) {
                size = Constant <value = int64[1] {1000000}> ()
                one = Constant <value = float[1] {1.0}> ()
                ones = Expand(one, size)
                y = Add(ones, x)
            }
        """)
    )
    run_ = ImportRun(model.importer, {"x": f32(1)}, no_bodies)
    assert run_.segment is not None
    held = [v for v in run_.segment.graph.values() if v.data is not None]
    assert sum(v.type.count for v in held) < 1000


def test_folded_weights_are_one_array_for_all_shapes() -> None:
    model = load_model(
        parse("""
            g (float[N, 2] x, bool c) => (float[N, 2] y, float[2] z) {
                w = Constant <value = float[2] {1.0, -2.0}> ()
                v = Abs(w)
                y = Mul(x, v)
                z = If (c) <
                    then_branch = t () => (float[2] a) { a = Neg(w) },
                    else_branch = e () => (float[2] b) { b = Identity(w) }
                >
            }
        """)
    )
    weights = []
    for n, c in ((1, True), (2, True), (2, False)):
        run_ = ImportRun(model.importer, {"x": f32(n, 2), "c": np.asarray(c)}, no_bodies)
        assert run_.segment is not None
        (node,) = run_.segment.graph.nodes
        weights.append(node.input(1).data)
        run_.advance(evaluate_graph(run_.segment.graph, run_.feeds))
        assert run_.outputs[1].tolist() == ([-1, 2] if c else [1, -2])
    assert weights[0] is weights[1]
    assert weights[0] is weights[2]


# Trimmed outputs


def first_positive(ctx: NodeContext) -> Trimmed | Value:
    """Return x up to the count in the second input: stands for a kernel that pads its result."""
    return ctx.trimmed(ctx.input(0), ctx.input(1))


@pytest.fixture
def trimming(own_registry: None) -> None:
    onnx_op("FirstPositive", domain="test.importer")(first_positive)


@pytest.mark.usefixtures("trimming")
def test_outputs_may_be_trimmed_after_the_segment() -> None:
    model = parse(
        """
        g (float[N] x, int64[1] n) => (float[K] y, float[N] z) {
            z = Neg(x)
            m = Abs(n)
            t = test.importer.FirstPositive(z, m)
            y = Exp(t)
        }
        """,
        more=', "test.importer": 1',
    )
    x = f32(6)
    session = NumpySession(model)
    assert_same(session.run({"x": x, "n": np.asarray([-4], np.int64)}), [np.exp(-x[:4]), -x])
    assert [type(t).__name__ for t in session.tasks] == ["TrimTask"]
    assert session.segments == 2


@pytest.mark.usefixtures("trimming")
def test_trimming_constants_needs_no_cut() -> None:
    model = parse(
        """
        g (float[N] x) => (float[K] y) {
            k = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
            n = Constant <value = int64 {1}> ()
            t = test.importer.FirstPositive(k, n)
            y = Add(t, x)
        }
        """,
        more=', "test.importer": 1',
    )
    session = NumpySession(model)
    assert_same(session.run({"x": np.zeros(1, np.float32)}), [np.asarray([1], np.float32)])
    assert session.segments == 1


# Operators on the host


def test_operators_without_canonical_form_run_in_place() -> None:
    model = parse("g (float[2, 2] x) => (float d, float[2, 2] y) { a = Neg(x) d = Det(a) y = Exp(x) }")
    x = f32(2, 2)
    session = NumpySession(model)
    assert_same(session.run({"x": x}), by_onnxruntime(model, {"x": x}))
    assert session.segments == 1
    (segment,) = session.imported
    (host,) = [n for n in segment.graph.nodes if n.op.name == "HostOp"]
    assert host.as_(HostOp).op_type == "Det"


def test_strings_stay_on_the_host() -> None:
    model = parse(
        """
        g (string[N] a, string[N] b) => (string[N] c, int64[1] n, string[M] d) {
            joined = StringConcat(a, b)
            n = Shape(joined)
            c = Identity(joined)
            one = Constant <value = int64[1] {1}> ()
            d = Gather(joined, one)
        }
        """,
        opset=20,
    )
    feeds = {"a": np.asarray(["x", "y", "ü"], object), "b": np.asarray(["1", "2", "3"], object)}
    assert_same(NumpySession(model).run(feeds), by_reference(model, feeds))
    feeds = {name: array.astype(str) for name, array in feeds.items()}
    assert_same(NumpySession(model).run(feeds)[0], np.asarray(["x1", "y2", "ü3"], object))


def test_host_failures_say_which_node_and_why() -> None:
    model = parse("g (float[N] x) => (float[K] y) { y = MaxUnpool <kernel_shape = [2]> (x, z) z = NonZero(x) }")
    with pytest.raises(ModelError, match=r"(?s)MaxUnpool .*(while running|importing) MaxUnpool node 'y'"):
        NumpySession(model).run({"x": f32(4)})


def test_run_host_refuses_what_onnx_cannot_run() -> None:
    from onnx import helper

    proto = helper.make_node("Gradient", ["x0"], ["y0"], domain="ai.onnx.preview.training", xs=["x"], y="y")
    with pytest.raises(UnsupportedOpError, match=r"Gradient of domain 'ai.onnx.preview.training'"):
        run_host("Gradient", "ai.onnx.preview.training", 1, proto.SerializeToString(), [f32(2)])


@pytest.mark.usefixtures("own_registry")
def test_registry_picks_the_newest_version_that_fits() -> None:
    @onnx_op("Versioned", since=3, domain="test.importer")
    def old(ctx: NodeContext) -> Value:
        """Import version 3."""
        return ctx.input(0)

    @onnx_op("Versioned", since=9, domain="test.importer")
    def new(ctx: NodeContext) -> Value:
        """Import version 9."""
        return ctx.input(0)

    found = [find_handler("Versioned", "test.importer", v) for v in (2, 3, 8, 9, 30)]
    assert found == [None, old, old, new, new]
    with pytest.raises(ValueError, match="registered twice"):
        onnx_op("Versioned", since=9, domain="test.importer")(old)
