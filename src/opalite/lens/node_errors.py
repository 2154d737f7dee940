"""Errors of nodes against the operators' NumPy references, added to a document."""

from __future__ import annotations

import math
from typing import Any

from ..run.report.verify_nodes import Check, Verification


def add_errors(document: dict[str, Any], found: Verification) -> None:
    """Give each node that was compared its worst `error`, and the model's nodes that of the nodes that compute them."""
    by_label: dict[str, list[Check]] = {}
    for check in found.nodes:
        by_label.setdefault(check.what, []).append(check)
    nodes = document["program"]["nodes"]
    for node in nodes:
        checks = by_label.get(f"{node['operators']} node '{node['name']}'", [])
        if node["target"] == "opencl" and checks:
            node["error"] = _raw(max(checks, key=_excess))
    for model_node in document["graph"]["nodes"]:
        errors = [nodes[n]["error"] for n in model_node["nodes"] if "error" in nodes[n]]
        if errors:
            model_node["error"] = max(errors, key=lambda e: math.inf if e["share"] is None else e["share"])
    checks = [*found.rewrites, *found.outputs]
    document["checks"] = [{"what": check.what, **_raw(check)} for check in checks]


def _excess(check: Check) -> float:
    """The difference as a multiple of what is allowed."""
    if check.difference == 0:
        return 0.0
    return check.difference / check.allowed if check.allowed else math.inf


def _raw(check: Check) -> dict[str, Any]:
    """A comparison as plain data; None stands for an infinite difference."""
    share = _excess(check)
    found: dict[str, Any] = {"allowed": check.allowed, "passed": check.passed, "problem": check.problem}
    found["difference"] = check.difference if math.isfinite(check.difference) else None
    return found | {"share": share if math.isfinite(share) else None}
