"""Weights that somebody holds in a kernel's form are found by the next plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import onnx
from onnx import helper
from opalite.ir.device import DeviceInfo
from opalite.ir.stored import LARGE, StoredArray
from opalite.plan.made_weights import made_of
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.run.model.imported import ImportedModel

from ...helpers.small_models import make_model, noise, port

DEVICE = Path(__file__).parents[2] / "fixtures" / "devices" / "pocl_avx512.json"


def test_what_is_held_is_found_and_what_is_not_is_made() -> None:
    size = LARGE // 4
    source = StoredArray(np.dtype(np.float32), (size,), lambda: np.zeros(size, np.float32))
    made: list[Any] = []

    def make() -> Any:
        made.append(1)
        return source.read() + len(made)

    held = made_of(source, "one", make)
    assert made_of(source, "one", make) is held
    assert made_of(source, "other", make)[0] == 2
    del held
    assert made_of(source, "one", make)[0] == 3
    small = StoredArray(np.dtype(np.float32), (2,), lambda: np.zeros(2, np.float32))
    kept = made_of(small, "one", lambda: np.ones(2, np.float32))
    assert made_of(small, "one", lambda: np.zeros(2, np.float32)) is not kept
    array = np.zeros(size, np.float32)
    kept = made_of(array, "one", array.copy)
    assert made_of(array, "one", array.copy) is not kept  # it may be changed


def test_plans_for_many_rows_and_for_one_hold_weights_once(tmp_path: Path) -> None:
    """The prompt's plan and the next tokens' of a decoder."""
    device = DeviceInfo.from_json(DEVICE.read_text())
    columns = 3 * device.pack * 8 * device.compute_units
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [port("x", ("rows", 256))],
        [port("y", ("rows", columns))],
        {"w": noise(256, columns, seed=1)},
    )
    onnx.save(model, tmp_path / "one.onnx")
    imported, arrays = ImportedModel(tmp_path / "one.onnx"), []
    for rows in (64, 1):
        segment = imported.fresh().only_segment({"x": noise(rows, 256)})
        program = plan(segment.graph, PlanOptions(), Knowledge(device)).program
        arrays.append(next(iter(program.weights.values())))
    assert arrays[0] is arrays[1]
