"""Loops with an iteration count that depends on a size: one import of the body serves all counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime, parse

RNG = np.random.default_rng(5)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def test_one_import_serves_all_numbers_of_trips() -> None:
    model = parse("""
        g (float[T, 3] x, float[3] h0) => (float[3] h, float[T, 3] ys) {
            zero = Constant <value = int64[1] {0}> ()
            yes = Constant <value = bool {1}> ()
            s = Shape(x)
            t = Gather(s, zero)
            trips = Squeeze(t)
            h, ys = Loop (trips, yes, h0) <
                body = b (int64 i, bool going, float[3] v) => (bool go, float[3] w, float[3] y) {
                    go = Identity(going)
                    row = Gather(x, i)
                    w = Add(v, row)
                    y = Neg(w)
                }
            >
        }
    """)
    session = NumpySession(model, symbols=True)
    for trips in (20, 5, 64, 33):
        feeds = {"x": f32(trips, 3), "h0": f32(3)}
        assert_same(session.run(feeds), by_onnxruntime(model, feeds))
    assert [type(t).__name__ for t in session.tasks] == ["LoopTask"]
    assert len(session.imported) == 1, "one body for all"
    fixed = NumpySession(model, symbols=False)
    assert_same(fixed.run(feeds), by_onnxruntime(model, feeds))
    assert not fixed.tasks, "unrolled where sizes are plain numbers"


def test_a_body_that_the_counter_decides_is_unrolled() -> None:
    """Its slices differ in each iteration, so that one program of the body would not serve two of them."""
    model = parse("""
        g (float[T, 3] x, float[1, 3] h0) => (float[1, 3] h) {
            zero = Constant <value = int64[1] {0}> ()
            yes = Constant <value = bool {1}> ()
            s = Shape(x)
            t = Gather(s, zero)
            trips = Squeeze(t)
            h = Loop (trips, yes, h0) <
                body = b (int64 i, bool going, float[1, 3] v) => (bool go, float[1, 3] w) {
                    go = Identity(going)
                    one = Constant <value = int64[1] {1}> ()
                    first = Unsqueeze(i, zero)
                    last = Add(first, one)
                    row = Slice(x, first, last, zero)
                    w = Add(v, row)
                }
            >
        }
    """)
    session = NumpySession(model, symbols=True)
    for trips in (20, 5):
        feeds = {"x": f32(trips, 3), "h0": f32(1, 3)}
        assert_same(session.run(feeds), by_onnxruntime(model, feeds))
        assert not session.tasks
