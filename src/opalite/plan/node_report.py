"""NodeReport: where a node runs, with which kernel, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class NodeReport:
    """One node after planning. `seconds` is the cost model's estimate, or the tuner's time if `measured`.

    model_nodes: (operator, name) of each ONNX node that it computes; none if a pass added it.
    """

    index: int
    name: str
    op: str
    origin: str
    target: str  # opencl, host or view
    kernel: str
    outputs: tuple[str, ...]
    places: tuple[str, ...]
    params: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    candidates: tuple[tuple[str, str, float, bool], ...] = ()  # kernel, output layout, seconds, whether measured
    refusals: dict[str, str] = field(default_factory=dict)
    launches: int = 0
    flops: float = 0.0
    nbytes: float = 0.0
    epilogue: str = ""
    seconds: float = 0.0
    measured: bool = False
    group: tuple[int, ...] | None = None  # the tuned work-group; None: the default one
    model_nodes: tuple[tuple[str, str], ...] = ()


def task_report(label: str, op: str, why: str, target: str = "host") -> NodeReport:
    """A report on a host task between two programs."""
    return NodeReport(0, label, op, op, target, "", (), (), why=why)
