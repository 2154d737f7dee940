"""Prompt length buckets on GPUs: one plan serves short prompts and one long prompts, whichever comes first.

By estimates for an H200, tiles for 128 tokens take twice the least time at 2,048 tokens, and tiles for 2,048 tokens
take three times the least time at 128.
"""

from __future__ import annotations

from ...importer.walk.shape_dependent_inputs import graph_with_hints
from ...ir.graph import Graph
from ...ir.growable_tensor import FEW, LONG, PROMPT, SHORT
from .background.respecialize_policy import Sizes


def prompt_sizes(sizes: Sizes, held: int, new: int, capacity: int) -> Sizes:
    """`sizes` with as many new positions as kernels are chosen for.

    held, new: positions in the caches, and added by this run. capacity: number of the size that says how many positions
    are reserved. Other sizes that are equal to these count as these.
    """
    more = (SHORT if new < LONG else PROMPT) - new
    moved = [n + more if n in (new, held + new) else n for n in sizes]
    moved[capacity] = max(sizes[capacity], held + new + more + 1)
    return tuple(moved)


def graph_of_prompts(graph: Graph, sizes: Sizes, held: int, new: int, capacity: int) -> Graph:
    """`graph`, or for prompts a copy at `prompt_sizes`, whose plan serves either short or long prompts."""
    if new <= FEW or new not in sizes or graph.trace is None:
        return graph
    wanted = prompt_sizes(sizes, held, new, capacity)
    if not graph.trace.holds(wanted):
        return graph
    moved = graph_with_hints(graph, wanted)
    assert moved.trace is not None
    bool(moved.trace.symbols[sizes.index(new)] < LONG)  # the comparison records a guard of the plan
    return moved
