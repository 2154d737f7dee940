"""importer/proto/apply_edits.py: an output is reduced to its last position, also with readers in subgraphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.importer import load_model
from opalite.ir.model_edits import ModelEdits

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime, parse

TEXT = """
    g (float[N, T, 3] x, bool c) => (float[N, T, 3] logits, float[N, T, 3] z, float[N, 1, 3] one) {
        logits = Exp(x)
        z = If(c) <
            then_branch = a () => (float[N, T, 3] u) { u = Neg(logits) },
            else_branch = b () => (float[N, T, 3] v) { v = Identity(logits) }
        >
        axis = Constant <value_ints = [1]> ()
        one = ReduceSum (logits, axis)
    }
"""
X = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)


def edited(names: tuple[str, ...], opset: int = 17) -> Any:
    model = parse(TEXT)
    del model.opset_import[:]
    model.opset_import.add(version=opset)
    return load_model(model, edits=ModelEdits(last=names)), model


def test_the_last_position_alone() -> None:
    feeds = {"x": X, "c": np.array(True)}
    whole = by_onnxruntime(parse(TEXT), feeds)
    loaded, model = edited(("logits",))
    assert [v.shape for v in loaded.outputs] == [("N", 1, 3), ("N", "T", 3), ("N", 1, 3)]
    got = NumpySession(model).run(feeds)
    assert_same(got, [whole[0][:, -1:], *whole[1:]])
    assert_same(got, by_onnxruntime(model, feeds))


@pytest.mark.parametrize("names, opset", [(("one",), 17), (("nothing", "x"), 17), (("logits",), 9)])
def test_others_stay_as_they_are(names: tuple[str, ...], opset: int) -> None:
    plain = parse(TEXT)
    _, model = edited(names, opset)
    assert model.graph == plain.graph


def test_the_edit_has_a_digest_of_its_own() -> None:
    found = {ModelEdits(last=names).digest() for names in ((), ("a",), ("b",), ("a", "b"))}
    assert len(found) == 4
    assert not ModelEdits(last=())
