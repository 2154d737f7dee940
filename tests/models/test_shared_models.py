"""Real models against the outputs that onnxruntime stored for them."""

from __future__ import annotations

import numpy as np
import pytest

import opalite
from opalite.ir.dtype import DType
from opalite.ir.tolerances import relative_difference, tolerance

from .shared import FOLDER, Case, find_cases

CASES = find_cases()

pytestmark = pytest.mark.skipif(not CASES, reason=f"no models in {FOLDER}")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.arrays.stem)
def test_outputs_match(case: Case) -> None:
    feeds, wanted = case.load()
    session = opalite.InferenceSession(case.model, precision="fp32")
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    for name, want in wanted.items():
        worst = relative_difference(outputs[name], want)
        if case.tier.startswith("int8"):
            assert worst <= tolerance("quantised model", DType.FLOAT32), f"{name}: {worst}"
            assert np.argmax(outputs[name]) == np.argmax(want)
        elif want.dtype.kind in "iub":
            assert worst == 0, name
        else:
            assert worst <= tolerance("model", DType.FLOAT32), f"{name}: {worst}"
    for memory in session.explain().memory:
        assert memory.totals[memory.chosen] <= 1.05 * memory.lower_bound
    if case.tier == "core":
        hosted = [f"{n.op} {n.name}: {n.why}" for n in session.explain().host_nodes]
        assert not hosted, hosted
