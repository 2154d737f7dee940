"""Fates of the model's nodes: launched, computed when planned, removed by a pass, and so on, each with a sentence."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from functools import cache
from typing import Any

from .. import passes
from ..passes.rewrite_driver import Rewrite
from .original_graph import ModelNode, OriginalGraph
from .program_parts import ProgramParts

_FOLDS = frozenset({"fold_constants", "fold_empty"})


def add_rewrites(logs: Sequence[Sequence[Rewrite]], graph: OriginalGraph, found: ProgramParts) -> list[dict[str, Any]]:
    """The rewrites of all parts, as plain data. The program's nodes get the numbers of those that touched them."""
    rewrites: list[dict[str, Any]] = []
    for part, log in enumerate(logs):
        for r in log:
            touched = graph.find((o.op_type, o.name) for o in r.origin)
            lost = graph.find((o.op_type, o.name) for o in r.lost)
            raw: dict[str, Any] = {"pass": r.rule, "part": part, "removed": list(r.removed), "added": list(r.added)}
            rewrites.append(raw | {"model_nodes": touched, "lost": lost})
    by_node: dict[tuple[int, int], list[int]] = {}
    for number, raw in enumerate(rewrites):
        for model_node in raw["model_nodes"]:
            by_node.setdefault((raw["part"], model_node), []).append(number)
    for node in found.nodes:
        mine = {n for model_node in node["model_nodes"] for n in by_node.get((node["part"], model_node), ())}
        node["rewrites"] = sorted(mine)
    return rewrites


def model_nodes(
    graph: OriginalGraph,
    found: ProgramParts,
    rewrites: Sequence[dict[str, Any]],
    imported: set[int],
    probed: set[int],
) -> list[dict[str, Any]]:
    """The nodes of the model as plain data, each with what became of it.

    imported, probed: those in graphs that were planned, and in those that the host evaluates first.
    """
    used = {graph.nodes[n].scope for n in imported | probed}
    programs: list[list[int]] = [[] for _ in graph.nodes]
    touched: list[list[int]] = [[] for _ in graph.nodes]
    for number, made_node in enumerate(found.nodes):
        for model_node in made_node["model_nodes"]:
            programs[model_node].append(number)
    for number, rewrite in enumerate(rewrites):
        for model_node in rewrite["model_nodes"]:
            touched[model_node].append(number)
    made = []
    for number, node in enumerate(graph.nodes):
        inside = [found.nodes[i] for i in programs[number]]
        if node.has_bodies:
            fate, words = "flow", "control flow: the nodes of its bodies stand for it"
        elif inside:
            fate, words = _computed(inside, found)
        elif number in probed:
            fate, words = "host", "computed by the host before the rest, because a branch or a shape depends on it"
        else:
            lost = [r for r in (rewrites[i] for i in touched[number]) if number in r["lost"]]
            fate, words = _gone(node, lost, number in imported, node.scope in used)
        launches = [s for n in inside for s in n["steps"] if found.steps[s]["kind"] == "launch"]
        raw: dict[str, Any] = {"name": node.name, "op": node.op, "scope": node.scope, "attributes": node.attributes}
        raw |= {"inputs": node.inputs, "outputs": node.outputs, "fate": fate, "fate_words": words}
        raw |= {"launches": launches, "nodes": programs[number], "rewrites": touched[number], "within": node.within}
        made.append(raw)
    for raw in reversed(made):  # a loop's launches are those of its body, whose nodes come after it
        if raw["within"] is not None:
            holder = made[raw["within"]]
            holder["launches"] = sorted({*holder["launches"], *raw["launches"]})
    return made


def _gone(node: ModelNode, lost: Sequence[dict[str, Any]], is_imported: bool, runs: bool) -> tuple[str, str]:
    """(fate, sentence) of a node that nothing computes in a run.

    lost: the rewrites after which nothing computed it. runs: whether other nodes of its graph are computed.
    """
    if lost:
        rule = lost[-1]["pass"]
        if rule in _FOLDS:
            return "planned", f"computed once when the model was planned, by the pass {rule}"
        return "removed", f"removed by the pass {rule}: {pass_sentence(rule)}"
    if is_imported:
        return "removed", "nothing reads its results after the passes"
    if node.follows == "constants":
        return "planned", "computed once when the model was imported: all that it reads is constant"
    if node.follows == "sizes":
        return "sizes", "computed by the host once for each choice of sizes: it follows from these alone"
    if node.scope and not runs:
        return "idle", "nothing of its branch, or of its loop's body, is computed in this run"
    return (
        "none",
        "nothing is left of it: its result is its input, or was known from sizes, constants and inputs",
    )


def _computed(nodes: Sequence[dict[str, Any]], found: ProgramParts) -> tuple[str, str]:
    """(fate, sentence) of a node that the program's `nodes` compute."""
    target = next(t for t in ("opencl", "host", "view", "transfer") if any(n["target"] == t for n in nodes))
    inside = [n for n in nodes if n["target"] == target]
    if target == "host":
        return "host", f"runs on the host: {inside[0]['why']}"
    if target != "opencl":
        return "view", f"takes no launch: {inside[0]['why']}"
    steps = [s for n in inside for s in n["steps"]]
    first = inside[0]
    others = len(first["model_nodes"]) - 1
    together = f", which computes {others} other node{'s' * (others > 1)} too" if others else ""
    which = f"launch {steps[0]}" if len(steps) == 1 else f"launches {steps[0]} to {steps[-1]}"
    return "launch", f"computed by {which} ({first['kernel']}){together}"


@cache
def _passes() -> dict[str, str]:
    """The first lines of the docstrings of all functions in the package of passes, by name."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(passes.__path__, f"{passes.__name__}."):
        for name, each in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
            if each.__module__ == module.name and each.__doc__:
                found[name] = " ".join(each.__doc__.partition("\n\n")[0].split())
    return found


def pass_sentence(name: str) -> str:
    """The sentence on a pass, by its name; '' for an unknown one."""
    return _passes().get(name, "")
