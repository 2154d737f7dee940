"""For which sizes kernels of a prompt are chosen on GPUs: one plan serves short prompts, and one long ones, whichever
prompt comes first. By estimates for an H200 tiles for 128 tokens take twice the least time at 2,048, and those for
2,048 three times at 128.
"""

from __future__ import annotations

from ...importer.walk.shape_dependent_inputs import graph_with_hints
from ...ir.graph import Graph
from ...ir.growable_tensor import FEW, LONG, PROMPT, SHORT
from .background.respecialize_policy import Sizes


def prompt_sizes(sizes: Sizes, held: int, new: int, capacity: int) -> Sizes:
    """`sizes` as they would be with as many new positions as kernels are chosen for.

    held, new: positions of the caches, and that are added. capacity: number of the size that says for how many there
    is memory. Other sizes that are as large as those are taken for them.
    """
    more = (SHORT if new < LONG else PROMPT) - new
    moved = [n + more if n in (new, held + new) else n for n in sizes]
    moved[capacity] = max(sizes[capacity], held + new + more + 1)
    return tuple(moved)


def graph_of_prompts(graph: Graph, sizes: Sizes, held: int, new: int, capacity: int) -> Graph:
    """`graph` or, where its plan is one for prompts, a copy with `prompt_sizes` at hand, whose plan serves short ones
    alone, or long ones."""
    if new <= FEW or new not in sizes or graph.trace is None:
        return graph
    wanted = prompt_sizes(sizes, held, new, capacity)
    if not graph.trace.holds(wanted):
        return graph
    moved = graph_with_hints(graph, wanted)
    assert moved.trace is not None
    bool(moved.trace.symbols[sizes.index(new)] < LONG)  # a guard of the plan
    return moved
