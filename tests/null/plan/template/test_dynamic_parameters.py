"""DynamicParameters: what changes from size to size is what the template gives there, and all that changes."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ir import DType
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.symbols import Trace
from opalite.plan.program import DownloadStep, LaunchStep
from opalite.plan.template.dynamic_parameters import DynamicParameters, packed
from opalite.plan.template.program_template import Template

from ....helpers.graphs import GraphMaker
from ....helpers.symbolic import Traced


def template() -> Template:
    """Attention to a cache of open length, some queries behind it, and a sum of its rows."""
    device = read_description("pocl_avx512")
    trace = Trace()
    g = GraphMaker()
    past, steps = trace.symbol(40, "past"), trace.symbol(8, "steps")
    old, new = g.input("old", 1, 2, past, 16), g.input("new", 1, 2, steps, 16)
    keys = g.add("keys", "Concat", old, new, axis=2)
    y = g.add("y", "Attention", new, keys, keys, None, scale=0.25, causal=False, softcap=0.0)
    rows = g.add("rows", "Reduce", g.map("e", "exp", keys), kind="sum", axes=(3,), keepdims=False)
    table = g.add("picked", "GatherElements", old, g.input("at", 1, 2, 3, 16, dtype=DType.INT64), axis=2)
    graph = g.done(y, rows, table)
    graph.trace = trace
    return Traced(graph, device).template


@pytest.mark.parametrize("sizes", [(40, 8), (2, 8), (63, 8), (100, 8)])
def test_numbers_are_the_templates(sizes: tuple[int, int]) -> None:
    made = template()
    moving = DynamicParameters(made, (100, 8), (0,))
    values, program = moving.at(sizes), made.at(sizes)
    assert values is not None
    assert program is not None
    scalars = {(s.step, s.arg): (s.dtype, values[s.value]) for s in moving.scalars}
    for i, (mine, wanted) in enumerate(zip(moving.program.steps, program.steps, strict=True)):
        if isinstance(wanted, DownloadStep):
            assert isinstance(mine, DownloadStep)
            assert (moving.shapes[i](values) if i in moving.shapes else mine.shape) == wanted.shape
        if not isinstance(wanted, LaunchStep):
            continue
        assert isinstance(mine, LaunchStep)
        shape = moving.grids[i](values) if i in moving.grids else (mine.grid, mine.group)
        assert shape == (wanted.grid, wanted.group)
        for j, (a, b) in enumerate(zip(mine.args, wanted.args, strict=True)):
            if (i, j) in scalars:
                dtype, value = scalars[i, j]
                assert np.dtype(dtype).type(value) == b.value  # type: ignore[union-attr]
            else:
                assert a == b
    for slot, contents in program.weights.items():
        held = moving.tables[slot](values) if slot in moving.tables else moving.program.weights[slot]
        np.testing.assert_array_equal(held, contents)


def test_other_sizes_take_another_program() -> None:
    moving = DynamicParameters(template(), (100, 8), (0,))
    assert moving.at((40, 9)) is None  # it does not move
    assert moving.at((101, 8)) is None  # there is no room
    assert moving.at((1, 8)) is None  # a guard fails
    with pytest.raises(ValueError, match="guard"):
        DynamicParameters(template(), (1, 8), (0,))


def test_scalars_are_packed_as_step_loops_read_them() -> None:
    assert packed("int32", -1) == 0xFFFFFFFF
    assert packed("float32", 1.0) == 0x3F800000
