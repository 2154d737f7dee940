"""PyTorch's nn.MultiheadAttention as it is exported, whose transposes vanish: as onnxruntime computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.models.net import Batch

import opalite
from opalite.cl.runtime import Runtime

from ....helpers.multihead import encoder
from ....helpers.onnx_text import by_onnxruntime
from ....helpers.small_models import noise

LENGTH, MEMORY, WIDTH = 13, 7, 32
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask": {"mask": True},
    "memory": {"memory": MEMORY},
    "sequence first": {"batch_first": False},
    "stacks": {"stacks": True, "mask": True},
    "stacks and memory": {"stacks": True, "memory": MEMORY},
}


def model_of(batch: Batch, length: Batch = LENGTH, **form: Any) -> Any:
    return encoder(batch, length, WIDTH, 4, layers=2, **form)


def feeds_of(batch: int, length: int = LENGTH, **form: Any) -> dict[str, Any]:
    lead = (batch, length) if form.get("batch_first", True) else (length, batch)
    feeds = {"x": noise(*lead, WIDTH)}
    if form.get("mask"):
        feeds["added"] = np.where(np.tri(length, dtype=bool), noise(length, length), np.float32(-np.inf))
    if form.get("memory"):
        feeds["memory"] = noise(batch, MEMORY, WIDTH, seed=1)
    return feeds


def check(session: opalite.InferenceSession, model: Any, feeds: dict[str, Any]) -> None:
    (wanted,) = by_onnxruntime(model, feeds)
    (found,) = session.run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_fixed_sizes(rt: Runtime, batch: int, form: str) -> None:
    model = model_of(batch, **FORMS[form])
    check(opalite.InferenceSession(model.SerializeToString(), device=rt.info.id), model, feeds_of(batch, **FORMS[form]))


@pytest.mark.parametrize("form", FORMS)
def test_an_open_batch(rt: Runtime, form: str) -> None:
    model = model_of("N", **FORMS[form])
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id)
    for batch in (2, 8, 1, 5):
        check(session, model, feeds_of(batch, **FORMS[form]))


@pytest.mark.parametrize("form", ["plain", "mask", "stacks"])
def test_open_batch_and_length(rt: Runtime, form: str) -> None:
    model = model_of("N", "L", **FORMS[form])
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id)
    for batch, length in ((2, 13), (3, 9), (1, 13), (4, 30)):
        check(session, model, feeds_of(batch, length, **FORMS[form]))
