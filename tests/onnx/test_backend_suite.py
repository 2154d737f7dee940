"""onnx's own backend suite through InferenceSession: every inference case, except a short list with reasons.

Functions written out in simpler operators (`..._expanded`) run by the general programs, which serve a model until its
own are built; all others by programs made for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

import opalite
from opalite.run.model.background.graph_compiler import Compiler

from .cases import all_cases, difference, is_float32, load_case
from .exclusions import EXCLUDED

RANDOM = ("bernoulli", "random", "multinomial", "training_dropout")


@pytest.mark.parametrize("name", all_cases())
def test_case(name: str, record_property: Any) -> None:
    if name in EXCLUDED:
        record_property("onnx_case", "excluded")
        pytest.skip(EXCLUDED[name])
    asked = Compiler.plan_options
    tier = {"tier": "generic"} if "_expanded" in name else {}
    with patch.object(Compiler, "plan_options", lambda self, *a, **k: replace(asked(self, *a, **k), **tier)):
        check_case(name, record_property)


def check_case(name: str, record_property: Any) -> None:
    case = all_cases()[name]
    model, data = load_case(case)
    session = opalite.InferenceSession(model.SerializeToString(), precision="fp32")
    names = [i.name for i in session.get_inputs()] + [i.name for i in session.get_overridable_initializers()]
    for inputs, wanted in data:
        got = session.run(None, dict(zip(names, inputs, strict=False)))
        if name.startswith("node/") and any(w in name for w in RANDOM) and "ratio" not in name:
            assert [g.shape for g in got] == [w.shape for w in wanted]
            continue
        rtol, atol = max(case.rtol, 1e-3), max(case.atol, 1e-5)
        for g, w in zip(got, wanted, strict=True):
            wrong = difference(g, w, rtol, atol)
            assert wrong is None, wrong
    record_property("onnx_case", "passed")
    if name.startswith("node/") and is_float32(model):
        record_property("onnx_float32", "host" if session.explain().host_nodes else "device")


def test_the_list_is_short() -> None:
    assert len(EXCLUDED) <= 0.015 * len(all_cases())
    assert not EXCLUDED.keys() - all_cases().keys(), "an exclusion names no case"
