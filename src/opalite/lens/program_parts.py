"""ProgramParts: nodes, steps, memory and sources of all programs of a capture, as plain data with numbers as names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..kernels.kernel_sources import arithmetic_of
from ..kernels.lower_arguments import Parameter, find_parameters
from ..plan.program import (
    DownloadStep,
    LaunchStep,
    LocalArg,
    NodeReport,
    Program,
    ScalarArg,
    SlotArg,
    SourceSpec,
    Step,
    Storage,
    UploadStep,
)
from ..run.execute.memory.slot_memory import slot_lives
from ..run.report.run_capture import Part, RunCapture
from .original_graph import OriginalGraph

_KINDS = {Storage.STATIC: "weight", Storage.DYNAMIC: "arena", Storage.SEPARATE: "io", Storage.RESERVED: "state"}


@dataclass
class ProgramParts:
    """The lists `program`, `sources` and `pieces` of a document (docs/lens.md). numbers: of steps, by identity."""

    parts: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    boxes: list[dict[str, Any]] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def to_raw(self) -> dict[str, Any]:
        """The keys of the document."""
        lists = ("parts", "nodes", "steps", "boxes", "edges")
        return {"program": {k: getattr(self, k) for k in lists}, "sources": self.sources, "pieces": self.pieces}


def program_parts(capture: RunCapture, graph: OriginalGraph) -> ProgramParts:
    """The programs of a capture, whose nodes refer to those of `graph`. Times are the plan's estimates."""
    made = _Maker(graph)
    for part in capture.parts:
        made.add(part)
    for report in capture.tasks:
        made.add_node(report, None, [])
    return made.found


class _Maker:
    def __init__(self, graph: OriginalGraph) -> None:
        self.found = ProgramParts()
        self._graph = graph
        self._sources: dict[SourceSpec, int] = {}
        self._pieces: dict[str, int] = {}

    def add(self, part: Part) -> None:
        """Append a program."""
        program, found = part.program, self.found
        number, first_node, first = len(found.parts), len(found.nodes), len(found.steps)
        boxes = self._add_boxes(program, number, first)
        for step in program.steps:
            found.numbers[id(step)] = len(found.steps)
            found.steps.append(self._step(program, step, number, boxes))
        taken = 0
        for report in program.placement:
            count = _steps_of(report, program.steps[taken:])
            self.add_node(report, number, list(range(first + taken, first + taken + count)))
            taken += count
        self._add_edges(program, first)
        m = program.memory
        memory = {
            "chosen": m.chosen,
            "arena": m.totals.get(m.chosen, program.arena_bytes),
            "lower_bound": m.lower_bound,
            "weights": m.static,
            "inputs_outputs": m.separate,
            "images": m.images,
        }
        found.parts.append(
            {
                "name": program.name,
                "loop": part.loop,
                "steps": list(range(first, len(found.steps))),
                "nodes": list(range(first_node, len(found.nodes))),
                "memory": memory,
            }
        )

    def add_node(self, report: NodeReport, part: int | None, steps: list[int]) -> None:
        """Append a node with its steps."""
        number, found = len(self.found.nodes), self.found
        for step in steps:
            found.steps[step]["node"] = number
        estimate = 1e3 * report.seconds
        launches = [s for s in steps if found.steps[s]["kind"] == "launch"]
        for step in launches:
            found.steps[step]["ms"] = _ms(estimate / len(launches))
        found.nodes.append(
            {
                "part": part,
                "name": report.name,
                "operators": report.origin or report.op,
                "op": report.op,
                "target": report.target,
                "kernel": report.kernel,
                "outputs": list(report.outputs),
                "places": list(report.places),
                "parameters": {k: _plain(v) for k, v in report.params.items()},
                "why": report.why,
                "epilogue": report.epilogue,
                "group": None if report.group is None else list(report.group),
                "steps": steps,
                "model_nodes": self._graph.find(report.model_nodes),
                "rewrites": [],
                "candidates": [
                    {"kernel": kernel, "layout": layout, "ms": _finite_ms(seconds), "is_measured": measured}
                    for kernel, layout, seconds, measured in report.candidates
                ],
                "refusals": dict(report.refusals),
                "ms": _ms(estimate),
                "estimated_ms": None if report.measured else _ms(estimate),
                "flops": report.flops,
                "bytes": report.nbytes,
            }
        )

    def _add_boxes(self, program: Program, part: int, first: int) -> dict[int, int]:
        """Append the memory that steps use; returns the number of each slot's box."""
        found, lives = self.found.boxes, slot_lives(program)
        used = [s for s in program.slots if s.id in lives]
        numbers = {s.id: len(found) + i for i, s in enumerate(used)}
        for slot in used:
            begin, end = lives[slot.id]
            kind = "image" if slot.image is not None and slot.storage is Storage.DYNAMIC else _KINDS[slot.storage]
            box = {"part": part, "label": slot.label, "kind": kind, "bytes": int(slot.nbytes)}
            box |= {"first": first + begin, "last": first + end}
            box["offset"] = slot.offset if kind == "arena" else None
            box["within"] = numbers.get(slot.within)
            if slot.image is not None:
                box["texels"] = list(slot.image)
            found.append(box)
        return numbers

    def _step(self, program: Program, step: Step, part: int, boxes: Mapping[int, int]) -> dict[str, Any]:
        raw: dict[str, Any] = {"part": part, "node": None, "name": step.node, "ms": None, "times": 1}
        if isinstance(step, UploadStep | DownloadStep):
            kind = "upload" if isinstance(step, UploadStep) else "download"
            box = boxes[step.slot]
            return raw | {"kind": kind, "bytes": self.found.boxes[box]["bytes"], "box": box}
        if not isinstance(step, LaunchStep):
            return raw | {"kind": "host", "kernel": getattr(step, "op_type", "")}
        spec = program.sources[step.source]
        options = [o for o in spec.options.split() if not o.startswith("-D")]
        groups = (
            None if step.group is None else math.prod(-(-g // w) for g, w in zip(step.grid, step.group, strict=False))
        )
        return raw | {
            "kind": "launch",
            "kernel": step.kernel,
            "entry": step.entry,
            "source": self._source(spec),
            "defines": dict(_defines(spec.options)),
            "options": " ".join(options),
            "grid": [int(n) for n in step.grid],
            "group": None if step.group is None else [int(n) for n in step.group],
            "groups": groups,
            "arguments": self._arguments(step, spec, boxes),
            "flops": step.flops,
            "bytes": step.nbytes,
            "arithmetic": arithmetic_of(spec.name, spec.options),
            "roof": None,
            "bound": "",
        }

    def _arguments(self, step: LaunchStep, spec: SourceSpec, boxes: Mapping[int, int]) -> list[dict[str, Any]]:
        names = parameters_of(spec, step)
        found: list[dict[str, Any]] = []
        for i, arg in enumerate(step.args):
            raw: dict[str, Any] = {"name": names[i].name if i < len(names) else ""}
            if isinstance(arg, SlotArg):
                raw |= {"kind": "buffer", "box": boxes[arg.slot], "is_read": i < len(names) and names[i].is_read}
            elif isinstance(arg, LocalArg):
                raw |= {"kind": "local", "bytes": arg.nbytes}
            elif isinstance(arg, ScalarArg):
                raw |= {"kind": "number", "value": _plain(arg.value)}
            found.append(raw)
        return found

    def _add_edges(self, program: Program, first: int) -> None:
        """Append the edges from each step that writes memory to the steps that read it."""
        writer: dict[int, int] = {}  # by box
        edges: dict[tuple[int, int], None] = {}
        holders = {i: b["within"] for i, b in enumerate(self.found.boxes) if b["within"] is not None}
        parts: dict[int, list[int]] = {}
        for box, holder in holders.items():
            parts.setdefault(holder, []).append(box)
        for number in range(first, first + len(program.steps)):
            step = self.found.steps[number]
            if step["kind"] in ("upload", "download"):
                reads, writes = ([], [step["box"]]) if step["kind"] == "upload" else ([step["box"]], [])
            else:
                buffers = [a for a in step.get("arguments", ()) if a["kind"] == "buffer"]
                reads = [a["box"] for a in buffers if a["is_read"]]
                writes = [a["box"] for a in buffers if not a["is_read"]]
            for box in reads:
                for each in (box, holders.get(box), *parts.get(box, ())):
                    if each in writer and writer[each] != number:
                        edges[writer[each], number] = None
            for box in writes:
                writer[box] = number
        self.found.edges.extend(edges)

    def _source(self, spec: SourceSpec) -> int:
        """The number of a program's text, whose paragraphs are shared with other programs."""
        if spec not in self._sources:
            pieces = [self._pieces.setdefault(p, len(self._pieces)) for p in spec.text.split("\n\n")]
            self.found.pieces.extend(list(self._pieces)[len(self.found.pieces) :])
            self._sources[spec] = len(self.found.sources)
            self.found.sources.append({"name": spec.name, "pieces": pieces})
        return self._sources[spec]


def parameters_of(spec: SourceSpec, step: LaunchStep) -> tuple[Parameter, ...]:
    """The parameters of a launch's kernel; none if the declaration is not understood."""
    try:
        return find_parameters(spec.text, spec.options, step.entry)
    except ValueError:
        return ()


def _steps_of(report: NodeReport, rest: Sequence[Step]) -> int:
    """The number of the next steps that a node takes."""
    if report.target == "opencl":
        return report.launches
    if not rest or isinstance(rest[0], LaunchStep) or report.target == "view":
        return 0
    if report.target == "host":
        return int(not isinstance(rest[0], UploadStep | DownloadStep))
    stem = report.outputs[0].rpartition(": ")[0].split("~")[0] if report.outputs else ""
    return int(isinstance(rest[0], UploadStep | DownloadStep) and rest[0].node.split("~")[0] == stem)


def _defines(options: str) -> list[tuple[str, str]]:
    found = (o.removeprefix("-D").partition("=") for o in options.split() if o.startswith("-D"))
    return [(name, value) for name, _, value in found]


def _plain(value: Any) -> Any:
    """A number of NumPy as JSON's."""
    number = value.item() if hasattr(value, "item") else value
    is_plain = isinstance(number, int | str) or (isinstance(number, float) and math.isfinite(number))
    return number if is_plain else str(number)


def _finite_ms(seconds: float) -> float | None:
    """None for a candidate that the cost model excludes: JSON has no infinity."""
    return _ms(1e3 * seconds) if math.isfinite(seconds) else None


def _ms(value: float) -> float:
    return float(f"{value:.5g}")
