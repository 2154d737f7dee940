"""Both tiers give one answer, on models of several kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.ir.precision import Precision
from opalite.ir.tolerances import relative_difference, tolerance
from opalite.run.model.background.graph_compiler import Compiler

from ...helpers.small_models import classifier, dense, inverter, make_model, noise, port, tagger, transformer_block

QUANTISER = make_model(
    [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("Cast", ["x"], ["i"], to=6)],
    [port("x", (3, 37))],
    [port("q", None), port("i", None)],
    {"s": np.float32(0.05), "z": np.uint8(128)},
)
"""Integers of floats that come from outside."""

MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "classifier": (classifier(), {"x": noise(2, 3, 33, 47)}),
    "transformer": (transformer_block(), {"x": noise(1, 19, 64)}),
    "recurrent": (tagger(), {}),
    "dense": (dense(), {}),
    "inverter": (inverter(), {"x": noise(1, 3, 8, 8)}),
    "quantiser": (QUANTISER, {"x": 2 * noise(3, 37)}),
}


IN_HALVES = ("classifier", "transformer", "recurrent")


def outputs(rt: Runtime, model: Any, feeds: dict[str, Any], tier: str, precision: str) -> tuple[list[Any], set[str]]:
    """What the session gives, and the kernels it ran."""
    asked = Compiler.plan_options
    with (
        patch.object(Compiler, "plan_options", lambda self, *a, **k: replace(asked(self, *a, **k), tier=tier)),
        opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision=precision) as session,
    ):
        if not feeds:
            shapes = session.example_shapes()
            feeds = {a.name: noise(*shapes[a.name], seed=4) for a in session.get_inputs()}
        return session.run(None, feeds), {n.kernel for n in session.explain().nodes}


@pytest.mark.parametrize(
    "name, precision", [*((name, Precision.FP32) for name in MODELS), *((name, Precision.FP16) for name in IN_HALVES)]
)
def test_tiers_agree(rt: Runtime, name: str, precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_TIERS", "0")
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "0")
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")  # two seconds of compiling each
    model, feeds = MODELS[name]
    tiers = ("optimized", "generic")
    (special, picked), (general, others) = (outputs(rt, model, feeds, tier, precision.value) for tier in tiers)
    assert any(k.endswith("Generic") for k in others) or precision is not Precision.FP32  # few of them know halves
    assert not any(k.endswith("Generic") for k in picked)
    for want, got in zip(special, general, strict=True):
        assert relative_difference(np.asarray(got), np.asarray(want)) <= tolerance("model", precision)
