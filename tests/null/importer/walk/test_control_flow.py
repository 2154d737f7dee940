"""If, Loop, Scan and optionals: inlined, unrolled or between segments, with equal results."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ModelError
from opalite.importer.walk import control_flow

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime, parse
from .host_tasks import check, f32, task_names

IF = """
g (float[N] x, bool c) => (float[N] y) {
    two = Constant <value = float {2.0}> ()
    y = If (c) <
        then_branch = t () => (float[N] a) { a = Mul(x, two) },
        else_branch = e () => (float[N] b) { b = Sub(x, two) }
    >
}
"""


@pytest.mark.parametrize("condition", [True, False])
def test_if_on_an_input_is_inlined_by_its_contents(condition: bool) -> None:
    session = check(parse(IF), {"x": f32(5), "c": np.asarray(condition)})
    assert session.segments == 1
    assert not session.tasks


def test_both_branches_stay_compiled() -> None:
    session = NumpySession(parse(IF))
    for condition in (True, False, True, False):
        session.run({"x": f32(5), "c": np.asarray(condition)})
    assert len(session.imported) == 2


def test_if_on_a_computed_value_cuts_the_model() -> None:
    model = parse("""
        g (float[N, M] x) => (float[N, M] y) {
            s = ReduceSum <keepdims = 0> (x)
            zero = Constant <value = float {0.0}> ()
            positive = Less(zero, s)
            r = Relu(x)
            y = If (positive) <
                then_branch = t () => (float[N, M] a) { a = Add(x, r) },
                else_branch = e () => (float[N, M] b) { b = Neg(r) }
            >
        }
    """)
    x = np.abs(f32(700, 300))
    session = check(model, {"x": x})
    assert session.segments == 2
    check(model, {"x": -x})


def test_if_condition_is_folded_from_shapes() -> None:
    model = parse("""
        g (float[N] x) => (float[M] y) {
            n = Size(x)
            four = Constant <value = int64 {4}> ()
            long = Greater(n, four)
            y = If (long) <
                then_branch = t () => (float[M] a) { a = Neg(x) },
                else_branch = e () => (float[M] b) { b = Identity(x) }
            >
        }
    """)
    assert check(model, {"x": f32(5)}).segments == 1
    session = check(model, {"x": f32(3)})
    assert session.segments == 0, "the output is the input: there is nothing to run"


def test_branches_may_give_captured_values_constants_and_one_value_twice() -> None:
    model = parse("""
        g (float[N] x, bool c) => (float[N] p, float[M] q, float[N] r) {
            p, q, r = If (c) <
                then_branch = t () => (float[N] a, float[M] k, float[N] b) {
                    k = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
                    a = Neg(x)
                    b = Identity(a)
                },
                else_branch = e () => (float[N] a2, float[M] k2, float[N] b2) {
                    a2 = Identity(x)
                    k2 = Neg(x)
                    b2 = Identity(x)
                }
            >
        }
    """)
    for condition in (True, False):
        check(model, {"x": f32(3), "c": np.asarray(condition)})


LOOP = """
g (int64 trips, float[N] x) => (float[N] last, float[T, N] rows) {
    yes = Constant <value = bool {1}> ()
    last, rows = Loop (trips, yes, x) <
        body = b (int64 i, bool going, float[N] carried) => (bool go, float[N] next, float[N] row) {
            go = Identity(going)
            f = Cast <to = 1> (i)
            row = Add(carried, f)
            next = Mul(row, x)
        }
    >
}
"""


@pytest.mark.parametrize("trips", [1, 3, 64])
def test_short_loops_are_unrolled(trips: int) -> None:
    model = parse(
        LOOP.replace("int64 trips, ", "").replace("yes =", f"trips = Constant <value = int64 {{{trips}}}> () yes =")
    )
    session = check(model, {"x": f32(4) * 0.1})
    assert session.segments == 1
    assert not session.tasks


@pytest.mark.parametrize("trips", [0, 1, 5, 100])
def test_loops_of_unknown_length_run_their_body(trips: int) -> None:
    session = NumpySession(parse(LOOP))
    feeds = {"trips": np.asarray(trips, np.int64), "x": f32(4) * 0.1}
    got = session.run(feeds)
    if trips:
        assert_same(got, by_onnxruntime(parse(LOOP), feeds))
    else:
        assert_same(got, [feeds["x"], np.empty((0, 0), np.float32)])
    assert task_names(session) == ["LoopTask"]
    assert len(session.imported) <= 2, "the body is imported once"


def test_while_loop_ends_by_its_condition() -> None:
    model = parse("""
        g (float[1] x) => (float[1] y, int64[1] n) {
            none = Constant <value = int64 {9223372036854775807}> ()
            yes = Constant <value = bool {1}> ()
            zero = Constant <value = int64[1] {0}> ()
            y, n = Loop (none, yes, x, zero) <
                body = b (int64 i, bool going, float[1] v, int64[1] count) => (bool go, float[1] w, int64[1] more) {
                    half = Constant <value = float[1] {0.5}> ()
                    one = Constant <value = int64[1] {1}> ()
                    w = Mul(v, half)
                    enough = Less(half, w)
                    shape = Constant <value = int64[0] {}> ()
                    go = Reshape(enough, shape)
                    more = Add(count, one)
                }
            >
        }
    """)
    session = check(model, {"x": np.asarray([37.0], np.float32)})
    assert "LoopTask" in task_names(session)


def test_loop_whose_condition_folds_is_unrolled() -> None:
    model = parse(
        """
        g (float[N] x) => (float[N] y) {
            yes = Constant <value = bool {1}> ()
            y = Loop ("", yes, x) <
                body = b (int64 i, bool going, float[N] v) => (bool go, float[N] w) {
                    three = Constant <value = int64 {3}> ()
                    go = Less(i, three)
                    w = Add(v, v)
                }
            >
        }
    """.replace('("", yes', "(none, yes").replace("yes =", "none = Constant <value = int64 {1000000}> () yes =")
    )
    session = check(model, {"x": f32(3)})
    assert not session.tasks
    assert session.segments == 1


def test_loop_that_never_starts_hands_its_state_on() -> None:
    model = parse("""
        g (float[N] x) => (float[N] y) {
            no = Constant <value = bool {0}> ()
            many = Constant <value = int64 {10}> ()
            y = Loop (many, no, x) <
                body = b (int64 i, bool going, float[N] v) => (bool go, float[N] w) { go = Identity(going) w = Neg(v) }
            >
        }
    """)
    check(model, {"x": f32(3)})


def test_loop_that_grows_its_state() -> None:
    model = parse("""
        g (float[N] x) => (float[M] y) {
            yes = Constant <value = bool {1}> ()
            trips = Constant <value = int64 {70}> ()
            y = Loop (trips, yes, x) <
                body = b (int64 i, bool going, float[K] v) => (bool go, float[L] w) {
                    go = Identity(going)
                    w = Concat <axis = 0> (v, x)
                }
            >
        }
    """)
    session = check(model, {"x": f32(2)})
    assert task_names(session) == ["LoopTask"], "more than 64 iterations are not unrolled"


def test_nested_control_flow() -> None:
    model = parse("""
        g (float[N] x, int64 n) => (float[N] y) {
            yes = Constant <value = bool {1}> ()
            y = Loop (n, yes, x) <
                body = outer (int64 i, bool going, float[N] v) => (bool go, float[N] w) {
                    go = Identity(going)
                    one = Constant <value = int64 {1}> ()
                    two = Constant <value = int64 {2}> ()
                    odd = Mod(i, two)
                    is_odd = Equal(odd, one)
                    t = If (is_odd) <
                        then_branch = a () => (float[N] p) { p = Add(v, x) },
                        else_branch = b () => (float[N] q) { q = Sub(v, x) }
                    >
                    w = Loop (two, going, t) <
                        body = inner (int64 j, bool g2, float[N] z) => (bool g3, float[N] zz) {
                            g3 = Identity(g2)
                            zz = Mul(z, x)
                        }
                    >
                }
            >
        }
    """)
    for n in (1, 4):
        check(model, {"x": f32(3), "n": np.asarray(n, np.int64)})


SCAN = """
g (float[N] s, float[T, N] x) => (float[N] last, float[T, N] rows) {
    last, rows = Scan <num_scan_inputs = 1 ATTRS> (s, x) <
        body = b (float[N] state, float[N] row) => (float[N] next, float[N] out) {
            next = Add(state, row)
            out = Mul(next, s)
        }
    >
}
"""


@pytest.mark.parametrize("attrs", ["", ", scan_input_directions = [1]", ", scan_output_directions = [1]"])
@pytest.mark.parametrize("length", [1, 7, 90])
def test_scan(attrs: str, length: int) -> None:
    text = SCAN.replace(" <num_scan_inputs = 1 ATTRS>", "").replace("body = b", f"num_scan_inputs = 1{attrs}, body = b")
    feeds = {"s": f32(3), "x": f32(length, 3)}
    fixed = check(parse(text.replace("float[T, N]", f"float[{length}, N]")), feeds)
    assert task_names(fixed) == (["ScanTask"] if length > control_flow.MAX_UNROLLED_ITERATIONS else [])
    session = check(parse(text), feeds)
    assert task_names(session) == (["ScanTask"] if length > 1 else []), "an open length is not unrolled"


@pytest.mark.parametrize("long", [False, True])
def test_scan_along_inner_axes(long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if long:
        monkeypatch.setattr(control_flow, "MAX_UNROLLED_ITERATIONS", 2)
    model = parse("""
        g (float[2, 3] s, float[2, 5, 3] x, float[2, 3, 5] z) => (float[2, 3] last, float[2, 3, 5] rows) {
            last, rows = Scan (s, x, z) <
                num_scan_inputs = 2, scan_input_axes = [1, -1], scan_input_directions = [1, 0], scan_output_axes = [-1],
                body = b (float[2, 3] state, float[2, 3] row, float[2, 3] col) => (float[2, 3] next, float[2, 3] out) {
                    next = Add(state, row)
                    out = Mul(next, col)
                }
            >
        }
    """)
    session = check(model, {"s": f32(2, 3), "x": f32(2, 5, 3), "z": f32(2, 3, 5)})
    assert bool(session.tasks) is long


def test_scan_of_opset_8_runs_each_batch_row_for_its_own_length() -> None:
    model = parse(
        """
        g (int64[B] lens, float[B, N] s, float[B, T, N] x) => (float[B, N] last, float[B, T, N] rows) {
            last, rows = Scan (lens, s, x) <
                num_scan_inputs = 1,
                body = b (float[N] state, float[N] row) => (float[N] next, float[N] out) {
                    next = Add(state, row)
                    out = Identity(next)
                }
            >
        }
        """,
        opset=8,
    )
    feeds = {"lens": np.asarray([4, 2], np.int64), "s": f32(2, 3), "x": f32(2, 4, 3)}
    check(model, feeds)


def test_bodies_see_values_of_earlier_segments_and_sequences() -> None:
    model = parse("""
        g (float[N] x) => (float[M] y) {
            z = NonZero(x)
            count = Shape(z)
            one = Constant <value = int64[1] {1}> ()
            n = Gather(count, one)
            none = Constant <value = int64[0] {}> ()
            trips = Reshape(n, none)
            yes = Constant <value = bool {1}> ()
            empty = SequenceEmpty <dtype = 1> ()
            seq = Loop (trips, yes, empty) <
                body = b (int64 i, bool going, seq(float[]) s) => (bool go, seq(float[]) more) {
                    go = Identity(going)
                    f = Cast <to = 1> (i)
                    v = Mul(x, f)
                    more = SequenceInsert(s, v)
                }
            >
            y = ConcatFromSequence <axis = 0> (seq)
        }
    """)
    x = f32(6)
    x[2] = 0
    check(model, {"x": x})


OPTIONAL = """
g (optional(float[N]) o, float[N] x) => (float[N] y, bool has) {
    has = OptionalHasElement(o)
    y = If (has) <
        then_branch = t () => (float[N] a) { v = OptionalGetElement(o) a = Add(v, x) },
        else_branch = e () => (float[N] b) { b = Neg(x) }
    >
}
"""


def test_optional_inputs() -> None:
    session = NumpySession(parse(OPTIONAL))
    o, x = f32(3), f32(3)
    assert_same(session.run({"o": o, "x": x}), [o + x, np.asarray(True)])
    assert_same(session.run({"o": None, "x": x}), [-x, np.asarray(False)])
    assert_same(session.run({"x": x}), [-x, np.asarray(False)])
    assert len(session.imported) == 2


def test_reading_an_empty_optional_is_an_error() -> None:
    model = parse("""
        g (optional(float[N]) o) => (float[N] y) { y = OptionalGetElement(o) }
    """)
    with pytest.raises(ModelError, match="holds nothing"):
        NumpySession(model).run({"o": None})


def test_condition_of_many_elements_is_refused() -> None:
    with pytest.raises(ModelError, match=r"condition of If node 'y' must hold one element, got shape \(2,\)"):
        NumpySession(parse(IF.replace("bool c", "bool[M] c"))).run({"x": f32(2), "c": np.asarray([True, False])})
