"""LensDocument: everything that `opalite lens` shows of one model on one device, as JSON-ready data (docs/lens.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .. import __version__
from ..importer.proto.graphdef import GraphDef
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph
from ..run.report.profile import Profile
from ..run.report.run_capture import RunCapture
from .comparison import compare
from .node_fates import add_rewrites, model_nodes, pass_sentence
from .original_graph import OriginalGraph, graph_of_reports, original_graph
from .peaks import add_roofs, peaks_of
from .program_parts import ProgramParts, program_parts
from .rewrites import graph_with_sizes, rewrites_of
from .timeline import add_times, timeline

SCHEMA = 1

_FACTORS = {"nvidia": 1.8}
"""The factor by which estimates are off, by family: those of an H200 are 0.64 of measured times, most within a
factor of 1.13 of that (docs/devices.md, `benchmarks.prediction`)."""
_FACTOR = 2.0
"""The least factor to expect of families that were never measured."""


def lens_document(
    capture: RunCapture,
    model: GraphDef | None,
    *,
    name: str,
    command: str = "",
    about: Mapping[str, Any] | None = None,
    units: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The document of a capture.

    model: the graph as its file has it; None for a bundle. name, command: of the model and of what was typed. about:
    further keys of the header. units: measured rates of other units than those of float32 (measure_units.py).
    """
    graphs = [graph_with_sizes(part) for part in capture.parts]
    imported = [g for g in graphs if g is not None]
    reports = [r for part in capture.parts for r in part.program.placement]
    graph = graph_of_reports(reports) if model is None else original_graph(model, imported)
    found = program_parts(capture, graph)
    logs = [
        []
        if part.graph is None or capture.options is None
        else rewrites_of(part.graph, capture.options, capture.device)
        for part in capture.parts
    ]
    rewrites = add_rewrites(logs, graph, found)
    nodes = model_nodes(graph, found, rewrites, _numbers(graph, imported), _numbers(graph, capture.probes))
    add_times(found, capture.profile)
    rates = peaks_of(capture.device, None if capture.profile is None else capture.profile.peaks, units or {})
    add_roofs(found.steps, rates)
    _add_shares(nodes, found)
    header = _header(capture, graph, found, name, command) | dict(about or {})
    return {
        "header": header,
        "peaks": rates,
        "graph": {"nodes": nodes, "tensors": graph.tensors, "edges": [list(e) for e in graph.edges]},
        **found.to_raw(),
        "rewrites": rewrites,
        "passes": {rule: pass_sentence(rule) for rule in dict.fromkeys(r["pass"] for r in rewrites)},
        "timeline": timeline(found, capture.profile),
        "drift": None,
    }


def lens_file(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Documents, the one that was asked for first, with its comparison with each other one, which counts as before."""
    others = range(1, len(documents))
    return {
        "opalite_lens": SCHEMA,
        "documents": list(documents),
        "comparisons": [compare(documents[i], documents[0]) | {"before": i, "after": 0} for i in others],
    }


def _header(capture: RunCapture, graph: OriginalGraph, found: ProgramParts, name: str, command: str) -> dict[str, Any]:
    launches = [s for s in found.steps if s["kind"] == "launch"]
    return {
        "model": name,
        **_device(capture.device),
        "precision": capture.precision,
        "version": __version__,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **_times(capture.profile, found, capture.device),
        "launches": sum(s["times"] for s in launches),
        "host_steps": sum(n["target"] == "host" for n in found.nodes),
        "flops": sum(s["flops"] * s["times"] for s in launches),
        "bytes": sum(s["bytes"] * s["times"] for s in launches),
        "inputs": [{"name": n, **graph.tensors[n]} for n in graph.inputs],
        "outputs": [{"name": n, **graph.tensors[n]} for n in graph.outputs],
        "notes": [note for note in capture.notes if note],
    }


def _numbers(graph: OriginalGraph, imported: Sequence[Graph]) -> set[int]:
    """Numbers of the model's nodes that imported graphs compute."""
    return set(graph.find((o.op_type, o.name) for g in imported for n in g.nodes for o in n.origin))


def _device(device: DeviceInfo) -> dict[str, Any]:
    return {
        "device": device.title,
        "device_id": device.id,
        "driver": device.driver,
        "platform": device.platform,
        "opencl": device.version,
        "compute_units": device.compute_units,
    }


def _times(profile: Profile | None, found: ProgramParts, device: DeviceInfo) -> dict[str, Any]:
    if profile is None:
        total = sum(n["ms"] for n in found.nodes)
        runs = {"is_measured": False, "runs": 0, "typical_runs": 0}
        return runs | {"device_ms": round(total, 6), "run_ms": None, "steady_ms": None, "error": _error(device)}
    runs = {"is_measured": True, "runs": len(profile.wall_s), "typical_runs": len(profile.typical_runs)}
    times = {"device_ms": 1e3 * profile.device_s, "run_ms": 1e3 * profile.run_s, "steady_ms": None}
    return runs | times | {"error": None}


def _error(device: DeviceInfo) -> dict[str, Any]:
    """The factor by which estimates are off on a device, and a sentence on it."""
    factor = _FACTORS.get(device.family, _FACTOR)
    basis = "measured on one GPU of this family" if device.family in _FACTORS else "never measured on this family"
    return {
        "factor": factor,
        "words": f"times are the cost model's estimates, off by a factor of about {factor}: {basis}",
    }


def _add_shares(nodes: Sequence[dict[str, Any]], found: ProgramParts) -> None:
    """Give each of the model's nodes an equal share of the time of the program's nodes that compute it."""
    for node in nodes:
        inside = [found.nodes[i] for i in node["nodes"]]
        node["ms"] = sum(n["ms"] / len(n["model_nodes"]) for n in inside)
