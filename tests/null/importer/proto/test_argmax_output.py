"""importer/proto/apply_edits.py: outputs with argmax and maximum of the logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.importer import load_model
from opalite.ir.model_edits import ModelEdits, argmax_name, max_name

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime, parse

TEXT = """
    g (float[N, T, 9] x) => (float[N, T, 9] logits, float[N, T] flat) {
        logits = Sin(x)
        axis = Constant <value_ints = [2]> ()
        flat = ReduceSum <keepdims = 0> (logits, axis)
    }
"""
X = np.random.default_rng(0).standard_normal((2, 5, 9)).astype(np.float32)


def edited(edits: ModelEdits, opset: int = 17) -> Any:
    model = parse(TEXT)
    del model.opset_import[:]
    model.opset_import.add(version=opset)
    return load_model(model, edits=edits), model


@pytest.mark.parametrize("last", [(), ("logits",)])
def test_the_largest_of_the_last_position(last: tuple[str, ...]) -> None:
    loaded, model = edited(ModelEdits(last=last, argmax=("logits", "logits")))
    names = [v.name for v in loaded.outputs]
    assert names == ["logits", "flat", argmax_name("logits"), max_name("logits")]
    assert [v.shape for v in loaded.outputs[2:]] == [("N", 1), ("N", 1)]
    got = NumpySession(model).run({"x": X})
    row = np.sin(X[:, -1])
    assert_same(got[2:], [row.argmax(-1)[:, None], row.max(-1)[:, None]])
    assert_same(got, by_onnxruntime(model, {"x": X}))


@pytest.mark.parametrize("names, opset", [(("flat",), 17), (("nothing", "x"), 17), (("logits",), 12)])
def test_others_stay_as_they_are(names: tuple[str, ...], opset: int) -> None:
    plain = parse(TEXT)
    _, model = edited(ModelEdits(argmax=names), opset)
    assert model.graph == plain.graph


def test_the_edit_has_a_digest_of_its_own() -> None:
    found = {ModelEdits(last=a, argmax=b).digest() for a, b in (((), ()), (("a",), ()), ((), ("a",)), (("a",), ("a",)))}
    assert len(found) == 4
    assert not ModelEdits(argmax=())
