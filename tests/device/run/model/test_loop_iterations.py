"""Loops whose number of trips is open: one plan serves all; where the host walks them, all trips are one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.run.model.control_flow import loop_runner

from ....helpers.onnx_text import assert_same, by_onnxruntime, parse

RNG = np.random.default_rng(3)
COUNTS = (20, 5, 64, 33, 2, 100, 7)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32) * np.float32(0.5)


ROWS = """
g (float[T, 8] x, float[1, 8] h0) => (float[1, 8] h, float[T, 1, 8] ys)
<float[8] w = {0.5, -0.25, 1, 0.75, -0.5, 0.125, 0.3, -1}, int64[1] zero = {0}, bool yes = {1}> {
    s = Shape(x)
    t = Gather(s, zero)
    trips = Squeeze(t)
    h, ys = Loop (trips, yes, h0) <body = step (int64 i, bool go, float[1, 8] v) =>
                                        (bool stay, float[1, 8] o, float[1, 8] y) {
        axes = Constant <value = int64[1] {0}> ()
        i1 = Unsqueeze(i, axes)
        row = Gather(x, i1)
        a = Mul(v, w)
        b = Add(a, row)
        o = Tanh(b)
        y = Identity(o)
        stay = Identity(go)
    }>
}
"""

# States that change places, one that stays, one that nothing reads, a row of what came in, and the trip's number.
PLACES = """
g (int64 m, float[4] p, float[4] q, float[4] r, float[4] u) =>
  (float[4] a, float[4] b, float[4] c, float[4] d, float[M, 4] rows, float[M, 4] before, float[M] count)
<bool yes = {1}, float[4] half = {0.5, 0.25, -0.5, 1}> {
    a, b, c, d, rows, before, count = Loop (m, yes, p, q, r, u) <
        body = step (int64 i, bool go, float[4] va, float[4] vb, float[4] vc, float[4] vd) =>
            (bool stay, float[4] oa, float[4] ob, float[4] oc, float[4] od, float[4] row, float[4] was, float n) {
        stay = Identity(go)
        oa = Identity(vb)
        s = Mul(va, half)
        ob = Add(s, vb)
        oc = Identity(vc)
        n = Cast <to = 1> (i)
        od = Add(vb, n)
        row = Sub(ob, vc)
        was = Identity(va)
    }>
}
"""

UNTIL = """
g (int64 m, float[3] x, float most) => (float[3] s, float n, float[K] ns)
<bool yes = {1}, float zero = {0}, float one = {1.0}, float less = {0.9}> {
    s, n, ns = Loop (m, yes, x, zero) <body = step (int64 i, bool go, float[3] v, float k) =>
            (bool stay, float[3] o, float ko, float kr) {
        a = Mul(v, less)
        o = Tanh(a)
        ko = Add(k, one)
        kr = Neg(ko)
        stay = Less(ko, most)
    }>
}
"""

SCAN = """
g (float[T, 2, 3] x, float[2, T, 3] z, float[2, 3] h0) => (float[2, 3] h, float[2, 3, T] ys, float[T, 2, 3] zs) {
    h, ys, zs = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [1, 0],
                      scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
                      body = step (float[2, 3] v, float[2, 3] row, float[2, 3] col) =>
                                  (float[2, 3] o, float[2, 3] y, float[2, 3] w) {
        a = Add(v, row)
        o = Tanh(a)
        y = Mul(o, col)
        w = Sub(col, v)
    }> (h0, x, z)
}
"""

GROWS = """
g (int64 m, float[2] x) => (float[L] y) <bool yes = {1}, float[1] one = {1}> {
    y = Loop (m, yes, x) <body = step (int64 i, bool go, float[A] v) => (bool stay, float[B] w) {
        stay = Identity(go)
        r = Relu(v)
        w = Concat <axis = 0> (r, one)
    }>
}
"""

NESTED = """
g (float[T, 4] x, float[4] h0) => (float[4] h) <int64[1] zero = {0}, bool yes = {1}> {
    s = Shape(x)
    t = Gather(s, zero)
    trips = Squeeze(t)
    h = Loop (trips, yes, h0) <body = outer (int64 i, bool go, float[4] v) => (bool stay, float[4] o) {
        row = Gather(x, i)
        a = Add(v, row)
        o = Loop (trips, go, a) <body = inner (int64 j, bool g2, float[4] w) => (bool g3, float[4] z) {
            g3 = Identity(g2)
            m = Mul(w, row)
            z = Tanh(m)
        }>
        stay = Identity(go)
    }>
}
"""


def number(value: int) -> Any:
    return np.asarray(value, np.int64)


def feeds_of(name: str, trips: int) -> dict[str, Any]:
    if name == "rows":
        return {"x": f32(trips, 8), "h0": f32(1, 8)}
    if name == "places":
        return {"m": number(trips), **{n: f32(4) for n in "pqru"}}
    if name == "until":
        return {"m": number(1000), "x": f32(3), "most": np.asarray(trips, np.float32)}
    if name == "scan":
        return {"x": f32(trips, 2, 3), "z": f32(2, trips, 3), "h0": f32(2, 3)}
    if name == "grows":
        return {"m": number(trips), "x": f32(2)}
    return {"x": f32(trips, 4), "h0": f32(4)}


MODELS = {"rows": ROWS, "places": PLACES, "until": UNTIL, "scan": SCAN, "grows": GROWS, "nested": NESTED}


def open_session(name: str, rt: Runtime) -> Any:
    return opalite.InferenceSession(parse(MODELS[name]).SerializeToString(), device=rt.info.id)


def check(session: Any, name: str, trips: int) -> None:
    feeds = feeds_of(name, trips)
    assert_same(session.run(None, feeds), by_onnxruntime(parse(MODELS[name]), feeds))


def warm_up(session: Any, name: str) -> None:
    """Until the step loop is there."""
    for _ in range(2):
        session.settle()
        for _ in range(30):
            session.run(None, feeds_of(name, 3))
    session.settle()


@pytest.mark.parametrize("way", ["loop", "queue"])
@pytest.mark.parametrize("name", MODELS)
def test_trips_equal_onnxruntimes(name: str, way: str, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "megakernel" if way == "loop" else "queue")
    session = open_session(name, rt)
    for trips in COUNTS[:3]:
        check(session, name, trips)
    warm_up(session, name)
    for trips in COUNTS:
        check(session, name, trips)
        if name != "grows":
            assert "loop_iterations" in session.last_timing.strategy, name
            assert session.last_timing.tier == "optimized"
    said = str(session.explain())
    if name == "grows":
        assert "as runs of their own: a loop-carried value changes its shape" in said
    else:
        walked = way == "loop" and rt.info.family == "pocl"
        assert ("in one call" if walked else "on the device's queue") in said


@pytest.mark.parametrize("name", ["rows", "places", "until", "scan"])
def test_one_plan_serves_all_numbers_of_trips(name: str, rt: Runtime) -> None:
    session = open_session(name, rt)
    for trips in COUNTS:
        session.run(None, feeds_of(name, trips))
    session.settle()
    before = session.stats()
    for trips in range(2, 40):
        check(session, name, trips)
    after = session.stats()
    assert after.plans_made == before.plans_made <= 2, "at most one of each tier"
    assert after.programs_built == before.programs_built


@pytest.mark.parametrize("way", ["loop", "queue"])
@pytest.mark.parametrize("name", ["places", "until", "scan"])
def test_many_trips_are_made_in_parts(name: str, way: str, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "megakernel" if way == "loop" else "queue")
    session = open_session(name, rt)
    warm_up(session, name)
    monkeypatch.setattr(loop_runner, "MAX_ITERATIONS", 7)
    for trips in (6, 7, 8, 50):
        check(session, name, trips)


def test_no_trip(rt: Runtime) -> None:
    session = open_session("places", rt)
    warm_up(session, "places")
    feeds = feeds_of("places", 0)
    *states, rows, _, _ = session.run(None, feeds)
    assert_same(states, [feeds[n] for n in "pqru"])
    assert rows.shape[0] == 0


def test_bundles_unroll_for_their_sizes(rt: Runtime, tmp_path: Path) -> None:
    model, path = parse(ROWS), tmp_path / "rows.opal"
    opalite.compile(model.SerializeToString(), path, shapes={"x": (6, 8), "h0": (1, 8)}, device=rt.info.id)
    feeds = feeds_of("rows", 6)
    assert_same(opalite.InferenceSession(path, device=rt.info.id).run(None, feeds), by_onnxruntime(model, feeds))
