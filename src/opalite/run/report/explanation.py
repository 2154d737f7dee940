"""Explanation: the placement and kernel of every node, as `session.explain()` returns it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from ...lazy_dataclass import dataclass
from ...plan.program import MemoryReport, NodeReport
from ..execute.run_trace import RunRecord


@dataclass
class Explanation:
    """Reports of all nodes for one shape of the inputs, in order of execution. `str()` returns a table."""

    device: str
    nodes: list[NodeReport] = field(default_factory=list)
    memory: list[MemoryReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    precision: list[str] = field(default_factory=list)  # sentences on the storage of float32 values
    tier: str = ""  # a sentence on the tier of the programs
    queueing: list[str] = field(default_factory=list)  # a sentence on the strategy of each segment

    @property
    def host_nodes(self) -> list[NodeReport]:
        """Nodes that run on the host, without transfers."""
        return [n for n in self.nodes if n.target == "host"]

    @property
    def python_nodes(self) -> list[NodeReport]:
        """Host nodes that onnx's reference evaluator computes in Python, which is slow."""
        from ...ops.host import BY_PYTHON  # imports operators, which sessions from a plan or bundle do not need

        return [n for n in self.host_nodes if BY_PYTHON in n.why]

    @property
    def launches(self) -> int:
        """Kernel launches of one run."""
        return sum(n.launches for n in self.nodes)

    @property
    def flops(self) -> float:
        """Floating-point operations of one run."""
        return sum(n.flops for n in self.nodes)

    def node(self, name: str) -> NodeReport:
        """The report of the node that computes the model's node `name`, alone or fused with others.

        Raises KeyError if there is no such node, or if it was folded.
        """
        of_others = (n for n in self.nodes if any(name == own for _, own in n.model_nodes))
        found = next((n for n in self.nodes if n.name == name), None) or next(of_others, None)
        if found is None:
            raise KeyError(name)
        return found

    def __str__(self) -> str:
        lines = [
            f"device {self.device}: {len(self.nodes)} nodes, {self.launches} launches, {self.flops / 1e6:.1f} MFLOP"
        ]
        widths = (4, 30, 34, 22, 26)
        lines.append(_row(("#", "node", "operators", "kernel", "place"), widths) + "why")
        for i, n in enumerate(self.nodes):
            kernel = n.kernel or f"({n.target})"
            place = n.places[0] if n.places else ""
            lines.append(_row((str(i), n.name, n.origin or n.op, kernel, place), widths) + n.why)
        for m in self.memory:
            lines.append(memory_line(m))
        lines.extend(self.queueing)
        lines.extend([self.tier] if self.tier else [])
        lines.extend(self.precision)
        lines.extend(self.notes)
        return "\n".join(lines)

    def details(self, name: str) -> str:
        """A text on one node: parameters, candidate kernels with their times, refusals."""
        n = self.node(name)
        lines = [f"{n.origin or n.op} '{n.name}' -> {', '.join(n.outputs)}", f"  runs: {n.kernel or n.target}; {n.why}"]
        if len(n.model_nodes) > 1:
            lines.append("  computes: " + ", ".join(f"{op} '{own}'" for op, own in n.model_nodes))
        if n.params:
            lines.append("  parameters: " + ", ".join(f"{k}={v}" for k, v in n.params.items()))
        if n.group is not None:
            lines.append(f"  work-group: {' x '.join(map(str, n.group))}")
        if n.kernel:
            lines.append(f"  time: {1e6 * n.seconds:.1f} us {'measured' if n.measured else 'expected'}")
        if n.epilogue:
            lines.append(f"  epilogue: {n.epilogue}")
        for kernel, layout, seconds, measured in n.candidates:
            how = f"{1e6 * seconds:.1f} us {'measured' if measured else 'expected'}"
            lines.append(
                f"  candidate {kernel} -> {layout}: {how if seconds < math.inf else 'only if tuning measures it'}"
            )
        for kernel, why in n.refusals.items():
            lines.append(f"  refused by {kernel}: {why}")
        return "\n".join(lines)


def explain(device: str, run_record: RunRecord) -> Explanation:
    """Build the Explanation of a run on `device`."""
    found = Explanation(device, notes=list(run_record.notes))
    ran = zip(run_record.executables, run_record.programs, strict=True)
    found.queueing = list(dict.fromkeys(executable.queueing(program) for executable, program in ran))
    for item in run_record.items:
        if isinstance(item, NodeReport):
            found.nodes.append(item)
        else:
            found.nodes.extend(item.placement)
            found.memory.append(item.memory)
    if found.python_nodes:
        nodes = ", ".join(f"{n.origin or n.op} '{n.name}'" for n in found.python_nodes)
        found.notes.append(f"Python computes {nodes}, by onnx's reference evaluator, which is slow")
    return found


def describe_tier(tiers: Sequence[str], pending: int, faults: Sequence[str]) -> str:
    """A sentence on the tier of the programs (docs/tiers.md); '' if no program ran.

    tiers: of each executable. pending: the number of optimized executables being built. faults: errors of building.
    """
    if not tiers:
        return ""
    if "generic" not in tiers:
        return "tier: optimized, programs made for this model"
    some = "generic" if "optimized" not in tiers else "generic for some parts"
    if faults:
        return f"tier: {some}, because the programs made for this model failed: {faults[-1]}"
    why = f"while those made for this model are built (for {pending} executables)" if pending else "for now"
    return f"tier: {some}, programs that serve any model, {why}"


def memory_line(m: MemoryReport) -> str:
    """A sentence on a memory plan."""
    totals = ", ".join(f"{name} {total / 1e6:.2f}" for name, total in sorted(m.totals.items(), key=lambda t: t[1]))
    images = f", images {m.images / 1e6:.2f} MB" if m.images else ""
    nested = f", {m.nested} tensors inside others" if m.nested else ""
    return (
        f"memory: arena {m.totals.get(m.chosen, 0) / 1e6:.2f} MB by {m.chosen} (lower bound {m.lower_bound / 1e6:.2f}; "
        f"{totals}), weights {m.static / 1e6:.2f} MB, inputs and outputs {m.separate / 1e6:.2f} MB{images}{nested}"
    )


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(_clip(cell, width) for cell, width in zip(cells, widths, strict=True))


def _clip(text: str, width: int) -> str:
    short = text if len(text) < width else text[: width - 3] + ".."
    return short.ljust(width)
