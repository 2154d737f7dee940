"""Comparison of two documents by the model's own nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TOTALS = ("device_ms", "run_ms", "steady_ms", "launches", "bytes")
Key = tuple[str, str, str]
"""Scope, operator and name of one of the model's nodes."""


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Differences of two documents: in total, and for each smallest set of nodes that both compute by whole launches.

    Two programs fuse in different ways. A row joins the model's nodes that share a node of either program.
    """
    documents = (before, after)
    parents: dict[Key, Key] = {}
    for document in documents:
        for keys in _groups(document):
            for key in keys:
                parents.setdefault(key, key)
                parents[_root(parents, key)] = _root(parents, keys[0])
    rows: dict[Key | None, dict[str, Any]] = {}
    for key in parents:
        row = rows.setdefault(_root(parents, key), _row())
        row["nodes"].append(key[2])
        row["op"].setdefault(key[1])
    for side, document in enumerate(documents):
        for node, keys in zip(document["program"]["nodes"], _groups(document), strict=True):
            steps = [document["program"]["steps"][s] for s in node["steps"]]
            launches = [s for s in steps if s["kind"] == "launch"]
            row = rows.setdefault(_root(parents, keys[0]) if keys else None, _row())
            row["ms"][side] = (row["ms"][side] or 0.0) + node["ms"]
            row["launches"][side] += sum(s["times"] for s in launches)
            if node["kernel"] and launches:
                row["kernel"][side].setdefault(node["kernel"])
    finished = [_finished(root, row) for root, row in rows.items()]
    heads = [d["header"] for d in documents]
    totals = {what: [h.get(what) for h in heads] for what in TOTALS}
    return {**totals, "rows": sorted(finished, key=lambda r: -abs(r["difference_ms"]))}


def _groups(document: Mapping[str, Any]) -> Iterable[list[Key]]:
    """The model's nodes of each node of a program."""
    nodes = document["graph"]["nodes"]
    for node in document["program"]["nodes"]:
        yield [(n["scope"], n["op"], n["name"]) for n in (nodes[i] for i in node["model_nodes"])]


def _root(parents: dict[Key, Key], key: Key) -> Key:
    while parents[key] != key:
        parents[key] = parents[parents[key]]
        key = parents[key]
    return key


def _row() -> dict[str, Any]:
    return {"nodes": [], "op": {}, "ms": [None, None], "launches": [0, 0], "kernel": ({}, {})}


def _finished(root: Key | None, row: dict[str, Any]) -> dict[str, Any]:
    """A row as plain data. root: None for nodes that passes added."""
    ms = row["ms"]
    return {
        "nodes": row["nodes"],
        "op": "transfers and casts" if root is None else "+".join(row["op"]),
        "ms": ms,
        "launches": row["launches"],
        "kernel": [", ".join(names) for names in row["kernel"]],
        "difference_ms": (ms[1] or 0.0) - (ms[0] or 0.0),
    }
