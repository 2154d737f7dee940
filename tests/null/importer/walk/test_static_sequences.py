"""Sequences: names if their length is known, host lists if not."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.importer.walk import control_flow

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import by_reference, parse
from .host_tasks import check, f32, task_names

CHAIN = """
g (float[N, 3] x) => (float[A, 3] y, int64 n, float[B, 3] piece, float[K, N, 3] stacked) {
    split = Constant <value = int64[2] {2, 3}> ()
    seq = SplitToSequence <axis = 0> (x, split)
    neg = Neg(x)
    zero = Constant <value = int64 {0}> ()
    longer = SequenceInsert(seq, neg, zero)
    shorter = SequenceErase(longer, zero)
    n = SequenceLength(longer)
    same = Identity(shorter)
    piece = SequenceAt(same, zero)
    y = ConcatFromSequence <axis = 0> (longer)
    two = SequenceConstruct(x, neg)
    stacked = ConcatFromSequence <axis = 0, new_axis = 1> (two)
}
"""


def test_known_sequences_cost_nothing() -> None:
    session = check(parse(CHAIN), {"x": f32(5, 3)})
    assert session.segments == 1
    assert not session.tasks


def test_unknown_positions_make_lists_of_the_host() -> None:
    text = CHAIN.replace("float[N, 3] x)", "float[N, 3] x, int64 zero)").replace(
        "zero = Constant <value = int64 {0}> ()\n", "\n"
    )
    for at in (0, -1):
        session = check(parse(text), {"x": f32(5, 3), "zero": np.asarray(at, np.int64)})
        assert session.segments == 1, "operators on lists need no segments between them"
        assert "PackTask" in task_names(session)


@pytest.mark.parametrize("attrs", ["", "<axis = 1>", "<axis = -1, keepdims = 0>"])
def test_split_into_single_rows(attrs: str) -> None:
    model = parse(f"""
        g (float[2, 3] x) => (float[A, B] y, int64 n, float last) {{
            seq = SplitToSequence {attrs} (x)
            n = SequenceLength(seq)
            minus = Constant <value = int64 {{-1}}> ()
            v = SequenceAt(seq, minus)
            last = ReduceMax <keepdims = 0> (v)
            y = ConcatFromSequence <axis = 0, new_axis = 1> (seq)
        }}
    """)
    session = check(model, {"x": f32(2, 3)})
    assert not session.tasks


def test_split_into_equal_pieces_leaves_a_shorter_one() -> None:
    model = parse("""
        g (float[5] x) => (float[K] y, seq(float[]) seq) {
            two = Constant <value = int64 {2}> ()
            seq = SplitToSequence(x, two)
            minus = Constant <value = int64 {-1}> ()
            y = SequenceAt(seq, minus)
        }
    """)
    session = check(model, {"x": f32(5)})
    assert task_names(session) == ["PackTask"], "an output of the model is a list"


def test_wrong_positions_and_sizes() -> None:
    with pytest.raises(ShapeError, match=r"SequenceErase node 'shorter' has position 7 in a sequence of 3"):
        NumpySession(
            parse(
                CHAIN.replace("SequenceErase(longer, zero)", "SequenceErase(longer, seven)").replace(
                    "neg = Neg(x)", "neg = Neg(x) seven = Constant <value = int64 {7}> ()"
                )
            )
        ).run({"x": f32(5, 3)})
    with pytest.raises(ShapeError, match=r"splits an axis of size 4 into \[2, 3\]"):
        NumpySession(parse(CHAIN)).run({"x": f32(4, 3)})


def test_elements_may_come_from_later_segments() -> None:
    model = parse("""
        g (float[N] x) => (float[K] y, seq(float[]) both, int64 n) {
            r = Relu(x)
            where = NonZero(r)
            flat = Constant <value = int64[1] {-1}> ()
            index = Reshape(where, flat)
            picked = Gather(x, index)
            both = SequenceConstruct(r, picked)
            n = SequenceLength(both)
            y = ConcatFromSequence <axis = 0> (both)
        }
    """)
    session = check(model, {"x": f32(7)})
    assert session.segments == 2


def test_unrolled_loops_carry_sequences() -> None:
    model = parse("""
        g (float[N] x) => (float[M] y) {
            trips = Constant <value = int64 {3}> ()
            yes = Constant <value = bool {1}> ()
            start = SequenceConstruct(x)
            seq = Loop (trips, yes, start) <
                body = b (int64 i, bool going, seq(float[]) s) => (bool go, seq(float[]) more) {
                    go = Identity(going)
                    last = Constant <value = int64 {-1}> ()
                    v = SequenceAt(s, last)
                    w = Add(v, x)
                    more = SequenceInsert(s, w)
                }
            >
            y = ConcatFromSequence <axis = 0> (seq)
        }
    """)
    session = check(model, {"x": f32(3)})
    assert not session.tasks
    assert session.segments == 1


def test_branches_give_sequences() -> None:
    model = parse("""
        g (float[N] x, bool c) => (float[M] y) {
            seq = If (c) <
                then_branch = t () => (seq(float[]) a) { a = SequenceConstruct(x, x) },
                else_branch = e () => (seq(float[]) b) { n = Neg(x) b = SequenceConstruct(n) }
            >
            y = ConcatFromSequence <axis = 0> (seq)
        }
    """)
    for c in (True, False):
        assert not check(model, {"x": f32(3), "c": np.asarray(c)}).tasks


def test_sequence_inputs_and_outputs() -> None:
    model = parse("""
        g (seq(float[]) s, float[2] x) => (seq(float[]) out, seq(float[]) same, float[2] first) {
            zero = Constant <value = int64 {0}> ()
            first = SequenceAt(s, zero)
            d = Add(x, x)
            out = SequenceInsert(s, d)
            same = Identity(s)
        }
    """)
    check(model, {"s": [f32(2), f32(2)], "x": f32(2)}, by_reference)


def test_sequence_map_runs_its_body_for_each_element() -> None:
    model = parse("""
        g (seq(float[]) s, float[1] x) => (seq(float[]) out) {
            out = SequenceMap (s, x) <
                body = b (float[N] element, float[1] other) => (float[N] y) { y = Mul(element, other) }
            >
        }
    """)
    session = check(model, {"s": [f32(2), f32(5)], "x": f32(1)}, by_reference)
    assert task_names(session) == ["MapTask"]


@pytest.mark.parametrize("long", [False, True])
def test_sequence_map_over_known_sequences(long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if long:
        monkeypatch.setattr(control_flow, "MAX_UNROLLED_ITERATIONS", 1)
    model = parse("""
        g (float[2, N] x, float[1] k) => (float[A] y, seq(float[]) squares) {
            seq = SplitToSequence <axis = 0, keepdims = 0> (x)
            scaled, squares = SequenceMap (seq, seq, k) <
                body = b (float[N] e, float[N] f, float[1] o) => (float[N] s, float[N] q) {
                    s = Mul(e, o)
                    q = Mul(e, f)
                }
            >
            y = ConcatFromSequence <axis = 0> (scaled)
        }
    """)
    session = check(model, {"x": f32(2, 4), "k": f32(1)})
    assert ("MapTask" in task_names(session)) is long
