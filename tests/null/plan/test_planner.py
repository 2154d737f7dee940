"""The planner is a function: of a graph, of what is asked for and of what is known."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from opalite.errors import PlacementError
from opalite.ir import DeviceInfo, Graph
from opalite.ir.dtype import DType
from opalite.ir.place import Memory
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.kernels.kernel import LaunchConfig
from opalite.plan.planner import Knowledge, PlanOptions, lay_out, plan, prepare

from ...helpers.graphs import GraphMaker
from ...helpers.tuning import CPU, conv_graph
from ..layout.test_image_plans import ADRENO, MALI


def steps_of(graph: Graph, options: PlanOptions, knowledge: Knowledge) -> Any:
    return plan(graph, options, knowledge).program.steps


def test_equal_questions_have_equal_answers() -> None:
    found = [steps_of(conv_graph(), PlanOptions(), Knowledge(CPU)) for _ in range(2)]
    assert found[0] == found[1]
    steps_of(conv_graph(), PlanOptions(PrecisionPolicy(Precision.FP16)), Knowledge(ADRENO))
    assert steps_of(conv_graph(), PlanOptions(), Knowledge(CPU)) == found[0]


def test_a_graph_is_laid_out_by_what_is_known_each_time_anew() -> None:
    """As a tuner does it: the rewriting is done once."""
    options = PlanOptions()
    prepared = prepare(conv_graph(), options, CPU)
    asked: list[str] = []

    def measured(node: Any, kernel: Any, binding: Any) -> float | None:
        asked.append(kernel.name)
        return 1.0 if kernel.name == "ConvDirect" else 2.0

    untuned = lay_out(prepared.copy(), options, Knowledge(CPU))
    tuned = lay_out(prepared.copy(), options, Knowledge(CPU, measured))
    assert "ConvDirect" in asked
    chosen = [next(r.kernel for r in p.report if r.op == "Conv") for p in (untuned, tuned)]
    assert chosen[0] != "ConvDirect" == chosen[1]
    assert lay_out(prepared, options, Knowledge(CPU)).program.steps == untuned.program.steps


def test_settings_are_what_kernels_run_with() -> None:
    def settings(nodes: Any) -> dict[Any, LaunchConfig]:
        softmax = [n for n in nodes if n.op.name == "Softmax"]
        chosen = [(n, n.chosen.kernel) for n in softmax]
        return {n: LaunchConfig(k.defaults(k.problem(n, CPU)), (7,), "told") for n, k in chosen}

    planned = plan(conv_graph(), PlanOptions(), Knowledge(CPU, find_settings=settings))
    report = next(r for r in planned.report if r.op == "Softmax")
    assert report.group == (7,)
    assert "parameters told" in report.why


def test_strict_refuses_the_host() -> None:
    g = GraphMaker()
    graph = g.done(g.map("double", lambda x: x * 2, g.input("x", 4, dtype=DType.FLOAT64)))
    (report,) = plan(graph.copy(), PlanOptions(), Knowledge(CPU)).report
    assert report.target == "host"
    with pytest.raises(PlacementError):
        plan(graph, PlanOptions(strict=True), Knowledge(CPU))


@pytest.mark.parametrize(
    ("device", "wanted"),
    [
        (ADRENO, (None, Memory.BUFFER, Memory.IMAGE2D)),
        (MALI, (Memory.BUFFER, Memory.BUFFER, Memory.IMAGE2D)),
        (dataclasses.replace(ADRENO, image_support=False), (Memory.BUFFER,) * 3),
    ],
)
def test_what_tensors_are_held_in(device: DeviceInfo, wanted: tuple[Memory | None, ...]) -> None:
    found = [PlanOptions(memory=word).held_in(device) for word in ("auto", "buffer", "image")]
    assert tuple(found) == wanted
    may_be_measured = None if device.image_support else Memory.BUFFER
    assert PlanOptions().held_in(device, is_measured=True) is may_be_measured
    assert PlanOptions(tries_images=True).held_in(device) is may_be_measured
