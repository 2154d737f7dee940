"""Host operators on text in a graph with numbers: their placement, results in own memory, other sizes, and a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import opalite
from opalite.errors import ShapeError

WORDS = np.array(["a", "größer", "", "a", "dd"], object)
MIXED = """<ir_version: 9, opset_import: ["" : 19]>
g (string[n] t, string[1] u, float[n] x, int64[k] i) => (float[n] y, string[k] w) {
    e = Equal(t, u)
    f = Cast <to = 1> (e)
    y = Mul(f, x)
    c = Where(e, u, t)
    w = Gather(c, i)
}"""
SEEN = """<ir_version: 9, opset_import: ["" : 19]>
g (string[n] t, int64[2] s) => (string[a, b] y) { y = Reshape(t, s) }"""


def load(text: str) -> bytes:
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def feeds(n: int, *places: int) -> dict[str, Any]:
    x = np.arange(1, n + 1, dtype=np.float32)
    return {"t": WORDS[:n], "u": WORDS[:1], "x": x, "i": np.array(places)}


def test_the_device_computes_what_is_numbers() -> None:
    session = opalite.InferenceSession(load(MIXED))
    for n in (3, 5, 4):
        y, w = session.run(None, feeds(n, 0, -1))
        np.testing.assert_array_equal(y, np.where(WORDS[:n] == "a", np.arange(1, n + 1), 0))
        np.testing.assert_array_equal(w, WORDS[[0, n - 1]])
    found = session.explain()
    assert found.launches == 1
    assert [n.origin for n in found.host_nodes] == ["Equal", "Where", "Gather"]
    assert all("str tensors exist on the host only" in n.why for n in found.host_nodes)
    assert not found.python_nodes
    with pytest.raises(ShapeError, match=r"an index is 4; expected -4 to 3(.|\n)*Gather node"):
        session.run(None, feeds(4, 4))


def test_results_are_in_memory_of_their_own() -> None:
    session = opalite.InferenceSession(load(SEEN))
    words = WORDS[:4].copy()
    for _ in range(2):
        (got,) = session.run(None, {"t": words, "s": np.array([2, 2])})
        np.testing.assert_array_equal(got, WORDS[:4].reshape(2, 2))
        got[...] = "mine"
        np.testing.assert_array_equal(words, WORDS[:4])


def test_a_bundle_moves_text(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(load(MIXED))
    shapes = {name: list(np.shape(v)) for name, v in feeds(5, 1, 0).items()}
    opalite.compile(tmp_path / "m.onnx", tmp_path / "m.opal", inputs=feeds(5, 1, 0), shapes=shapes)
    y, w = opalite.InferenceSession(tmp_path / "m.opal").run(None, feeds(5, 1, 0))
    np.testing.assert_array_equal(y, [1, 0, 0, 4, 0])
    np.testing.assert_array_equal(w, ["größer", "a"])


def test_what_python_computes_is_told() -> None:
    text = """<ir_version: 9, opset_import: ["" : 13]>
    g (float[4] x) => (float[4] y) <float half = {0.5}, bool train = {1}> { y = Dropout <seed = 1> (x, half, train) }"""
    session = opalite.InferenceSession(load(text))
    session.run(None, {"x": np.ones(4, np.float32)})
    found = session.explain()
    assert [n.origin or n.op for n in found.python_nodes] == ["Dropout"]
    assert "Python computes Dropout" in str(found)
