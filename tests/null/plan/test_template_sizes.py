"""A graph whose symbols are moved to other sizes is planned as one that was imported for those."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx import helper
from opalite.importer import ImportRun, load_model
from opalite.importer.walk.shape_dependent_inputs import graph_with_hints
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.graph import Graph
from opalite.ir.symbols import Trace
from opalite.plan.planner import Knowledge, Planned, PlanOptions, plan
from opalite.plan.program import LaunchStep

from ...helpers.small_models import make_model, noise, port

DEVICE = read_description("pocl_avx512")
SMALL, LARGE = (2, 16, 9, 12), (4, 16, 150, 130)


def resized() -> Any:
    """Convolutions, one after a Resize to sizes that are computed, with a float factor."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Resize", ["a", "", "scales"], ["b"], mode="linear"),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "two"], ["height"]),
        helper.make_node("Cast", ["height"], ["real"], to=1),
        helper.make_node("Div", ["c", "real"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["y"], kernel_shape=[3, 3], pads=[1] * 4, ceil_mode=1, strides=[2, 2]),
    ]
    constants = {
        "w1": noise(32, 16, 3, 3),
        "w2": noise(48, 32, 3, 3),
        "scales": np.array([1, 1, 1.7, 1.3], np.float32),
        "two": np.array(2, np.int64),
    }
    return make_model(nodes, [port("x", ["n", 16, "h", "w"])], [port("y", None)], constants)


def imported(shape: tuple[int, ...]) -> tuple[Graph, Trace]:
    importer = load_model(resized().SerializeToString()).importer
    segment = ImportRun(importer, {"x": np.zeros(shape, np.float32)}, lambda body, inner: []).segment
    assert segment is not None
    assert segment.graph.trace is not None
    return segment.graph, segment.graph.trace


def planned(graph: Graph) -> Planned:
    return plan(graph.copy(), PlanOptions(), Knowledge(DEVICE))


def launches(found: Planned, sizes: tuple[int, ...]) -> list[Any]:
    assert found.template is not None
    program = found.template.at(sizes)
    assert program is not None
    steps = [s for s in program.steps if isinstance(s, LaunchStep)]
    return [(s.entry, program.sources[s.source].parts, s.grid, s.group) for s in steps]


def test_a_moved_graph_is_planned_as_one_imported_there() -> None:
    small, trace = imported(SMALL)
    at = (4, 150, 130)
    before = launches(planned(small), at)
    guards = trace.guards
    moved = graph_with_hints(small, at)
    assert moved.trace is not None
    assert [s.hint for s in moved.trace.symbols] == list(at)
    assert moved.trace.names == trace.names
    found = planned(moved)
    large, _ = imported(LARGE)
    assert launches(found, at) == launches(planned(large), at)
    assert launches(found, at) != before, "the same kernels are best at both sizes, so that this tests nothing"
    assert found.template is not None
    assert found.template.sizes == at
    assert found.template.holds((2, 9, 12)), "the sizes that it came from"
    assert trace.guards == guards, "what is planned for other sizes narrows the first trace"


def test_expressions_keep_their_text_and_take_the_new_values() -> None:
    trace = Trace()
    h, w = trace.symbol(7, "h"), trace.symbol(12, "w")
    odd = (h * w + 3) // 4
    assert odd > 2
    moved = trace.moved((100, 31))
    again = moved.dim(odd.poly)  # type: ignore[attr-defined]
    assert again.text == odd.text  # type: ignore[attr-defined]
    assert again.hint == (100 * 31 + 3) // 4  # type: ignore[attr-defined]
    assert moved.guards == trace.guards
    before = trace.guards
    assert again > 500
    assert moved.guards != before
    assert trace.guards == before
