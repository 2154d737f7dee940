"""The worker: plans models for devices and writes the programs to a folder, with the opalite that it imports.

A record is a folder: MODEL/DEVICE.PRECISION.jsonl has one line per program and step (lines.py), sources/DIGEST.cl the
source texts. No OpenCL device is needed: if a later segment needs computed values, the NumPy references compute them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
from opalite.errors import OpaliteError
from opalite.importer import ImportRun, ModelImporter, load_model
from opalite.importer.walk.constant_evaluation import evaluate_graph
from opalite.importer.walk.segments import Segment
from opalite.ir import DeviceInfo, Graph
from opalite.ir.rng_seed import set_base
from opalite.plan.program import Program
from opalite.run.execute.run_trace import RunTrace
from opalite.run.model.background.graph_compiler import Compiler
from opalite.run.model.compile_options import CompileOptions

from ..models import NAMES, build
from ..models.feeds import random_feeds, stored_feeds
from .lines import Record, Writer, digest


@dataclass(frozen=True)
class Job:
    """models: names of benchmarks.models, or files; devices: files of DeviceInfo; folder: of the record."""

    models: Sequence[str]
    devices: Sequence[str]
    precisions: Sequence[str]
    folder: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def record(job: Job) -> None:
    """Carries out `job`; prints each finished model."""
    folder = Path(job.folder)
    (folder / "sources").mkdir(parents=True, exist_ok=True)
    devices = {Path(path).stem: DeviceInfo.from_json(Path(path).read_text()) for path in job.devices}
    writer = Writer()
    for model in job.models:
        _record_model(model, devices, job.precisions, folder, writer)
        for key, text in writer.texts.items():
            path = folder / "sources" / f"{key}.cl"
            if not path.exists():
                path.write_text(text)
        print(Path(model).stem, flush=True)


def _record_model(
    model: str, devices: Mapping[str, DeviceInfo], precisions: Sequence[str], folder: Path, writer: Writer
) -> None:
    proto, feeds = load(model)
    contents = proto.SerializeToString(deterministic=True)
    place = folder / Path(model).stem
    place.mkdir(exist_ok=True)
    try:
        graphs = list(graphs_of(contents, feeds))
    except OpaliteError as e:
        graphs = []
        failure = [_failure(e)]
    for name, device in devices.items():
        for precision in precisions:
            records = [{"step": "model", "digest": digest(contents)}]
            records += _programs(graphs, device, precision, writer) if graphs else failure
            text = "".join(json.dumps(r) + "\n" for r in records)
            (place / f"{name}.{precision}.jsonl").write_text(text)


def load(model: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A built-in model or one in a file, and its inputs: stored ones, or random ones."""
    if model in NAMES:
        proto = build(model)
        return proto, random_feeds(proto)
    proto = onnx.load(model)
    return proto, stored_feeds(Path(model)) or random_feeds(proto)


def graphs_of(contents: bytes, feeds: Mapping[str, Any]) -> Iterator[Graph]:
    """The graph of every segment that a run with `feeds` reaches, loop bodies included."""
    set_base(0)  # random operators without seeds
    model = load_model(contents)
    seen: dict[Segment, None] = {}

    def run(importer: ModelImporter, values: Mapping[str, Any]) -> list[Any]:
        run_ = ImportRun(importer, values, run)
        while (segment := run_.segment) is not None:
            seen[segment] = None
            if importer is model.importer and segment.next_stage is None and not segment.tasks:
                return []  # its result is not needed
            run_.advance(evaluate_graph(segment.graph_at(run_.sizes), run_.feeds))
        return run_.outputs

    run(model.importer, feeds)
    return (s.graph for s in seen)


def plan(graph: Graph, device: DeviceInfo, precision: str) -> Program:
    """The Program that a session compiles from `graph`, which stays unchanged."""
    runtime: Any = SimpleNamespace(info=device)  # planning without tuning needs nothing else
    return Compiler(runtime, CompileOptions(precision=precision)).plan(graph.copy(), RunTrace()).program


def _programs(graphs: Sequence[Graph], device: DeviceInfo, precision: str, writer: Writer) -> Iterator[Record]:
    for graph in graphs:
        try:
            program = plan(graph, device, precision)
        except Exception as e:  # of any kind: failures are recorded and compared too
            yield _failure(e)
        else:
            yield from writer.records(program)


def _failure(e: Exception) -> Record:
    return {"step": "failure", "error": type(e).__name__, "message": str(e)}


if __name__ == "__main__":
    record(Job(**json.load(sys.stdin)))
