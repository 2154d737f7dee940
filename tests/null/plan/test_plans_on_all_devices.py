"""Every fixture device gets a plan for networks of every kind, within its limits."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from opalite.ir import DeviceInfo
from opalite.plan.program import LaunchStep
from opalite.run.model.imported_model import ImportedModel
from opalite.run.model.model_inputs_outputs import example_shapes
from tests.helpers.device_plans import FIXTURES, plan

from ...helpers.small_models import classifier, tagger, transformer_block

MODELS = {"convolutions": classifier, "attention": transformer_block, "recurrent": tagger}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda p: p.stem)
def test_plans_fit_the_device(path: Path, model: str) -> None:
    device = DeviceInfo.from_json(path.read_text())
    source = ImportedModel(MODELS[model]().SerializeToString())
    program = plan(source, example_shapes(source.inputs), device)
    launches = [s for s in program.steps if isinstance(s, LaunchStep)]
    assert launches
    for step in launches:
        assert step.group is not None
        assert math.prod(step.group) <= device.max_work_group_size
        assert all(w <= limit for w, limit in zip(step.group, device.max_work_item_sizes, strict=False))
        assert all(g % w == 0 for g, w in zip(step.grid, step.group, strict=True))
    assert program.arena_bytes <= 1.05 * program.memory.lower_bound + 4096
