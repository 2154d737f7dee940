"""Plans of real models for every described device are those on record, and fill the waves of GPUs."""

from __future__ import annotations

import difflib

import pytest

from opalite.cli.compare import plans_text

from ...helpers.lanes_busy import LEAST, asked_grids
from ...plans.record import FOLDER, MODELS, NAMES, plans


@pytest.mark.parametrize("name", NAMES)
def test_plans_are_those_on_record(name: str) -> None:
    if not (MODELS / f"{name}.onnx").is_file():
        pytest.skip(f"the model {name}.onnx is not here")
    records = {}
    with asked_grids() as asked:
        for device, plan in plans(name):
            records[device] = plan.to_raw()
            if not plan.device.is_cpu:
                idle = f"{device}: lanes are idle, most in {asked.worst(plan.launches, plan.device)}"
                assert asked.share(plan.launches, plan.device) >= LEAST, idle
    then, now = (FOLDER / f"{name}.json").read_text(), plans_text(records)
    lines = difflib.unified_diff(then.splitlines(), now.splitlines(), "on record", "now", n=2, lineterm="")
    assert then == now, "\n".join(
        ["plans changed; if for the better, `python -m tests.plans.record` records them", *lines]
    )
