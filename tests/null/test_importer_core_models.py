"""Real models through the importer and the NumPy references: no device, and the outputs that onnxruntime stored."""

from __future__ import annotations

import pytest

from ..helpers.numpy_session import NumpySession
from ..models.shared import FOLDER, Case, find_cases, worst_difference

CASES = find_cases()
QUANTISED_STEP = 0.25
"""int8 models: a value that falls on the other side of a rounding boundary moves by a whole quantisation step."""
SEGMENTS = {"nms_yolov8": 2}
"""Models whose shapes depend on data; all others are one segment, control flow included."""

pytestmark = pytest.mark.skipif(not CASES, reason=f"no models in {FOLDER}")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.arrays.stem)
def test_outputs_match(case: Case) -> None:
    feeds, wanted = case.load()
    session = NumpySession(case.model)
    outputs = dict(zip([o.name for o in session.model.outputs], session.run(feeds), strict=True))
    limit = QUANTISED_STEP if case.tier.startswith("int8") else 1e-3
    for name, want in wanted.items():
        assert worst_difference(outputs[name], want) <= limit, name
    assert session.segments == SEGMENTS.get(case.name, 1)
