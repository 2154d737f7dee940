"""Weights that are made again when they are wanted are those that are made at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
from onnx import helper
from opalite.cl.programs.build_parallelism import parallel_map
from opalite.ir.constants.lazy_array import LazyArray
from opalite.ir.device.device_descriptions import read_description
from opalite.plan import emit_program
from opalite.plan.planner import Knowledge, Planned, PlanOptions, plan
from opalite.run.model.imported_model import ImportedModel

from ...helpers.small_models import make_model, noise, port

DEVICE = read_description("pocl_avx512")


def planned(path: Path, late: bool) -> Planned:
    imported = ImportedModel(path)
    segment = imported.only_segment({"x": noise(4, 512)})
    return plan(segment.graph, PlanOptions(late_weights=late), Knowledge(DEVICE))


def test_late_weights_are_the_same(tmp_path: Path) -> None:
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("MatMul", ["p", "v"], ["y"])],
        [port("x", (4, 512))],
        [port("y", (4, 768))],
        {"w": noise(512, 640, seed=1), "v": noise(640, 768, seed=2)},
    )
    onnx.save(model, tmp_path / "two.onnx")
    at_once, late = (planned(tmp_path / "two.onnx", wanted) for wanted in (False, True))
    waiting = [w for w in late.program.weights.values() if isinstance(w, LazyArray)]
    assert len(waiting) == 2
    assert waiting[0].read() is waiting[0].read()  # nothing is made twice yet
    late.release_weights()
    asked: list[int] = []

    def each(read: Callable[[Any], Any], weights: Iterable[Any]) -> list[Any]:
        asked.append(len(list(weights)))
        return parallel_map(read, weights)

    late.load_weights(each)
    assert asked == [2]  # at once, for they may be made side by side
    assert all(w._found() is not None for w in waiting)
    for number, array in at_once.program.weights.items():
        made = late.program.weights[number]
        np.testing.assert_array_equal(made.read() if isinstance(made, LazyArray) else made, array)


def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_program, "MOST_HELD", 1 << 20)
    weights = {f"w{i}": noise(512, 512, seed=i) for i in range(3)}  # 1 MB each
    nodes = [helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]) for i in range(3)]
    model = make_model(nodes, [port("x", (4, 512))], [port("h3", (4, 512))], weights)
    onnx.save(model, tmp_path / "three.onnx")
    late = planned(tmp_path / "three.onnx", True)
    gc.collect()
    waiting = [w for w in late.program.weights.values() if isinstance(w, LazyArray)]
    assert len(waiting) == 3
    assert sum(w._found() is not None for w in waiting) <= 1
