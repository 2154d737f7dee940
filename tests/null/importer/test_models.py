"""Real models by the importer and the NumPy references, without a device: onnxruntime's stored outputs."""

from __future__ import annotations

import pytest

from opalite.ir.dtype import DType
from opalite.ir.tolerances import relative_difference, tolerance

from ...helpers.numpy_session import NumpySession
from ...models.shared import FOLDER, Case, find_cases

CASES = list({case.name: case for case in find_cases()}.values())
"""One of each model: tests/models runs all."""
SEGMENTS = {"nms_yolov8": 2}
"""Models whose shapes depend on data; all others are one segment, control flow included."""

pytestmark = pytest.mark.skipif(not CASES, reason=f"no models in {FOLDER}")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.arrays.stem)
def test_outputs_match(case: Case) -> None:
    feeds, wanted = case.load()
    session = NumpySession(case.model)
    outputs = dict(zip([o.name for o in session.model.outputs], session.run(feeds), strict=True))
    limit = tolerance("quantised model" if case.tier.startswith("int8") else "model", DType.FLOAT32)
    for name, want in wanted.items():
        assert relative_difference(outputs[name], want) <= limit, name
    assert session.segments == SEGMENTS.get(case.name, 1)
