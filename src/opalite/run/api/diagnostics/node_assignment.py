"""Nodes by the provider they run on, as onnxruntime reports them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ....plan.node_report import NodeReport


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """One node."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """Nodes that run on one provider."""

    ep_name: str
    nodes: list[OrtEpAssignedNode] = field(default_factory=list)

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes."""
        return list(self.nodes)


def assigned(reports: Iterable[NodeReport], device: str, host: str) -> list[OrtEpAssignedSubgraph]:
    """Stretches of nodes that run on `device`, and on `host`."""
    found: list[OrtEpAssignedSubgraph] = []
    for report in reports:
        ep = host if report.target == "host" else device
        if not found or found[-1].ep_name != ep:
            found.append(OrtEpAssignedSubgraph(ep))
        domain, _, op = report.origin.rpartition(".") if "." in report.origin else ("", "", report.origin or report.op)
        found[-1].nodes.append(OrtEpAssignedNode(report.name, domain, op))
    return found
