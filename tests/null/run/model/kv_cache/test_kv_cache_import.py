"""For which sizes a prompt's kernels are chosen."""

from __future__ import annotations

import pytest

from opalite.ir import Graph
from opalite.ir.growable_tensor import FEW, LONG, PROMPT, SHORT
from opalite.ir.symbols import Trace
from opalite.run.model.kv_cache.kv_cache_import import graph_of_prompts, prompt_sizes


@pytest.mark.parametrize(
    "sizes, held, new, wanted",
    [
        ((128, 128, 200), 0, 128, (SHORT, SHORT, SHORT + 1)),
        ((3, 500, 600, 4096), 100, 500, (3, SHORT, SHORT + 100, 4096)),
        ((LONG, LONG, 5000), 0, LONG, (PROMPT, PROMPT, 5000)),
        ((8000, 8000, 9000), 0, 8000, (PROMPT, PROMPT, 9000)),
    ],
)
def test_prompts_are_planned_by_their_class(
    sizes: tuple[int, ...], held: int, new: int, wanted: tuple[int, ...]
) -> None:
    assert prompt_sizes(sizes, held, new, len(sizes) - 1) == wanted


def graph(*sizes: int) -> Graph:
    made = Graph("g")
    made.trace = Trace()
    for size in sizes:
        made.trace.symbol(size)
    return made


def test_a_plan_of_a_class_serves_no_other() -> None:
    short = graph_of_prompts(graph(128, 200), (128, 200), 0, 128, 1)
    long = graph_of_prompts(graph(900, 1000), (900, 1000), 0, 900, 1)
    assert short.trace is not None
    assert long.trace is not None
    lengths = (20, 128, LONG - 1, LONG, 5000)
    assert [short.trace.holds((n, 6000)) for n in lengths] == [True, True, True, False, False]
    assert [long.trace.holds((n, 6000)) for n in lengths] == [False, False, False, True, True]


def test_few_tokens_and_sizes_that_guards_exclude_are_planned_as_they_come() -> None:
    few, guarded = graph(FEW, 200), graph(128, 200)
    assert guarded.trace is not None
    assert guarded.trace.symbols[0] < 150  # a guard
    assert graph_of_prompts(few, (FEW, 200), 0, FEW, 1) is few
    assert graph_of_prompts(guarded, (128, 200), 0, 128, 1) is guarded
