"""The sampling model, run by onnx's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnx
from opalite.importer.proto.sampling_model import logits_head
from opalite.ir.dtype import DType


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("penalised", [False, True])
@pytest.mark.parametrize("banned", [False, True])
def test_candidates(dtype: DType, count: int, penalised: bool, banned: bool) -> None:
    logits = np.random.default_rng(3).standard_normal((1, 2, 9)).astype(dtype.np)
    feeds: dict[str, Any] = {"logits": logits}
    row = logits[0, -1].astype(np.float64)
    if penalised:
        feeds |= {"seen": np.array([[2, 5, 2]]), "penalty": np.array([[1.7]], np.float32)}
        row[[2, 5]] = np.where(row[[2, 5]] > 0, row[[2, 5]] / 1.7, row[[2, 5]] * 1.7)
    if banned:
        feeds["banned"] = np.array([[0, int(row.argmax())]])
        row[feeds["banned"][0]] = -1e30
    if count != 1:
        feeds["temperature"] = np.array([[0.8]], np.float32)
    model = onnx.load_from_string(logits_head(dtype, count, penalised, banned))
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == list(feeds)
    found = ReferenceEvaluator(model).run(None, feeds)
    order = np.argsort(-row, kind="stable")
    if count == 1:
        assert found[0].tolist() == [[order[0]]]
        return
    np.testing.assert_allclose(found[0].item(), np.log(np.exp(row / 0.8).sum()), rtol=1e-5)
    np.testing.assert_allclose(found[1][0], row[order[:count]], rtol=1e-5)
    assert found[2][0].tolist() == order[:count].tolist()
