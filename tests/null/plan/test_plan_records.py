"""Plans of real models for every described device are those on record."""

from __future__ import annotations

import difflib

import pytest

from ...plans.record import FOLDER, MODELS, NAMES, record


@pytest.mark.parametrize("name", NAMES)
def test_plans_are_those_on_record(name: str) -> None:
    if not (MODELS / f"{name}.onnx").is_file():
        pytest.skip(f"the model {name}.onnx is not here")
    then, now = (FOLDER / f"{name}.json").read_text(), record(name)
    lines = difflib.unified_diff(then.splitlines(), now.splitlines(), "on record", "now", n=2, lineterm="")
    assert then == now, "\n".join(
        ["plans changed; if for the better, `python -m tests.plans.record` records them", *lines]
    )
