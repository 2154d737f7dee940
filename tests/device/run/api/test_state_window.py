"""Caches that hold a window of keys (`sliding_window_cache`): fed back as arrays, and in a state, where they grow."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime

ort = pytest.importorskip("onnxruntime")
WINDOW, WIDTH = 4, 16
STEPS = (3, 1, 1, 1, 1, 5, 1, 12, 1, 1)
LAYER = "past_key_values.0", "present.0"


def model() -> bytes:
    """One layer as onnxruntime-genai's builder writes it, with its own names of dimensions for the cache."""
    (past, present), tensor = LAYER, helper.make_tensor_value_info
    inputs = ["q", "k", "v", f"{past}.key", f"{past}.value", "ends", "total"]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": WINDOW, "sliding_window_cache": 1}
    outputs = ["y", f"{present}.key", f"{present}.value"]
    node = helper.make_node("GroupQueryAttention", inputs, outputs, domain="com.microsoft", **attrs)
    rows = [("q", 4 * WIDTH), ("k", 2 * WIDTH), ("v", 2 * WIDTH), ("y", 4 * WIDTH)]
    of = {n: tensor(n, TensorProto.FLOAT, ["batch", "sequence_length", w]) for n, w in rows}
    for n in inputs[3:5]:
        of[n] = tensor(n, TensorProto.FLOAT, ["batch", 2, "past_sliding_length", WIDTH])
    for n in outputs[1:]:
        of[n] = tensor(n, TensorProto.FLOAT, ["batch", 2, "total_sliding_length", WIDTH])
    of["ends"], of["total"] = tensor("ends", TensorProto.INT32, ["batch"]), tensor("total", TensorProto.INT32, [])
    graph = helper.make_graph([node], "g", [of[n] for n in inputs], [of[n] for n in outputs])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return made


def runs(seed: int) -> list[tuple[int, dict[str, Any]]]:
    """(tokens after it, feeds besides the caches) of each run."""
    rng = np.random.default_rng(seed)
    found = []
    for end, count in zip(itertools.accumulate(STEPS), STEPS, strict=True):
        widths = {"q": 4 * WIDTH, "k": 2 * WIDTH, "v": 2 * WIDTH}
        feeds = {n: rng.standard_normal((1, count, w)).astype(np.float32) for n, w in widths.items()}
        found.append((end, {**feeds, "ends": np.array([end - 1], np.int32), "total": np.array(end, np.int32)}))
    return found


def test_one_session_serves_all_capacities(rt: Runtime) -> None:
    session, reference = opalite.InferenceSession(model(), device=rt.info.id), ort.InferenceSession(model())
    for capacity in (6, WINDOW, 9):
        pasts = [np.zeros((1, 2, capacity, WIDTH), np.float32)] * 2
        held = [pasts, pasts]
        step = capacity - WINDOW + 1
        for end, feeds in runs(capacity):
            found = [
                s.run(None, {**feeds, f"{LAYER[0]}.key": k, f"{LAYER[0]}.value": v})
                for s, (k, v) in zip((session, reference), held, strict=True)
            ]
            rows = end - step * max(-((capacity - end) // step), 0)
            held = [presents for _, *presents in found]
            got, want = ([y, *(c[:, :, :rows] for c in presents)] for y, *presents in found)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_state_keeps_all_keys_where_they_are(rt: Runtime) -> None:
    with opalite.InferenceSession(model(), device=rt.info.id) as session:
        state, reference = session.state(), ort.InferenceSession(model())
        held = [np.zeros((1, 2, 9, WIDTH), np.float32)] * 2
        for end, feeds in runs(0):
            (got,) = state.run(feeds)
            want, *held = reference.run(None, {**feeds, f"{LAYER[0]}.key": held[0], f"{LAYER[0]}.value": held[1]})
            np.testing.assert_allclose(got, want, atol=1e-5)
            assert len(state) == end
        assert state.copies == ""
