"""OrtEpAssignedSubgraph: nodes by execution provider, in onnxruntime's form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ....plan.program import NodeReport


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """One node of the model."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """Consecutive nodes of one provider."""

    ep_name: str
    nodes: list[OrtEpAssignedNode] = field(default_factory=list)

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes."""
        return list(self.nodes)


def assigned(reports: Iterable[NodeReport], device: str, host: str) -> list[OrtEpAssignedSubgraph]:
    """Group consecutive nodes by provider. device, host: the providers' names."""
    found: list[OrtEpAssignedSubgraph] = []
    for report in reports:
        ep = host if report.target == "host" else device
        if not found or found[-1].ep_name != ep:
            found.append(OrtEpAssignedSubgraph(ep))
        domain, _, op = report.origin.rpartition(".") if "." in report.origin else ("", "", report.origin or report.op)
        found[-1].nodes.append(OrtEpAssignedNode(report.name, domain, op))
    return found
