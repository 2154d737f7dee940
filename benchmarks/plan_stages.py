"""Planning time by stage for `benchmarks.planning --stages`: import, passes, layout, emission, memory, another size."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opalite.importer import ImportRun

SIZES = {"batch": 2, "height": 224, "width": 224, "length": 24}
"""Sizes for open dimensions by name."""

LENGTHS = {
    "wav2vec2": 16000,
    "wav2vec2_conformer": 16000,
    "wav2vec2_bert": 100,
    "hubert": 16000,
    "sew_d": 16000,
    "vits": 40,
}
"""Lengths by architecture, where they are others."""


@dataclass
class Stages:
    """CPU seconds by stage of one model on one device, and counts.

    new_size: seconds for other sizes; None if no size is open. same: whether the existing plan served them. segments: 1
    if the first one is the whole model.
    """

    model: str
    device: str
    nodes: int = 0
    calls: int = 0
    launches: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    new_size: float | None = None
    same: bool = True
    whole: bool = True

    @property
    def total(self) -> float:
        """Seconds without weights, whose time depends on their bytes."""
        return sum(seconds for stage, seconds in self.seconds.items() if stage != "weights")


def budget(nodes: int) -> float:
    """CPU seconds allowed for planning: 1 for 1,000 nodes, 2 for 3,000."""
    return nodes / 1000 if nodes <= 1000 else 1 + (nodes - 1000) / 2000


def measure(path: Path, device_file: Path, tier: str = "optimized") -> Stages:
    """Plans the model at `path` once in a warm process, and for other sizes."""
    import onnx
    from opalite.ir import DeviceInfo
    from opalite.plan import planner
    from opalite.plan.memory import liveness
    from opalite.plan.template import make_template
    from opalite.plan.weights import packed_weights
    from opalite.run.model.imported_model import ImportedModel

    device = DeviceInfo.from_json(device_file.read_text())
    found = Stages(path.stem, device_file.stem)
    found.nodes = len(onnx.load(path, load_external_data=False).graph.node)
    options: Any = planner.PlanOptions(tier=tier)  # type: ignore[arg-type]
    with counted_rules() as calls:
        started = time.process_time()
        model = ImportedModel(path)
        segment = ImportRun(model.importer, _types(model, path.stem, 1), _no_bodies).segment
        found.seconds["import"] = time.process_time() - started
        if segment is None:
            return found
        found.whole = segment.next_stage is None
        graph = segment.graph.copy()

        started = time.process_time()
        prepared = planner.prepare(graph, options, device)
        found.seconds["passes"] = time.process_time() - started

        with (
            timed(planner, "place") as placing,
            timed(liveness, "plan_memory") as memory,
            timed(make_template, "plan_memory") as template_memory,
            timed(packed_weights.Form, "made") as weights,
        ):
            started = time.process_time()
            planned = planner.lay_out(prepared, options, planner.Knowledge(device))
            laid_out = time.process_time() - started
        memory[0] += template_memory[0]
    found.calls = sum(calls.values())
    found.launches = sum(type(s).__name__ == "LaunchStep" for s in planned.program.steps)
    rest = laid_out - placing[0] - memory[0] - weights[0]
    found.seconds |= {"place": placing[0], "plan": rest, "memory": memory[0], "weights": weights[0]}
    if planned.template is not None:
        _another_size(found, model, path.stem, planned, segment)
    return found


def _another_size(found: Stages, model: Any, name: str, planned: Any, segment: Any) -> None:
    started = time.process_time()
    run_ = ImportRun(model.importer, _types(model, name, 2), _no_bodies)
    found.same = run_.segment is segment and planned.template.at(run_.sizes) is not None
    found.new_size = time.process_time() - started


def _types(model: Any, name: str, times: int) -> Mapping[str, Any]:
    """Input types with open sizes `times` as large as the example's."""
    from opalite.ir.tensor_type import TensorType
    from opalite.run.model.model_inputs_outputs import example_shapes

    given = {**SIZES, "length": LENGTHS.get(name.removesuffix("-open"), SIZES["length"])}
    shapes = example_shapes(model.inputs)
    return {
        a.name: TensorType(
            a.dtype, tuple(times * given[d] if d in given else n for d, n in zip(a.shape, shapes[a.name], strict=True))
        )
        for a in model.inputs
        if a.dtype is not None
    }


def _no_bodies(*_: Any) -> Any:
    raise AssertionError("a loop's body is not run here")


@contextmanager
def counted_rules() -> Iterator[dict[str, int]]:
    """Counts rule calls by pass while the context is active."""
    from opalite.passes import pipeline

    calls: dict[str, int] = {}
    plain = pipeline.run_rule

    def run_rule(graph: Any, name: str, rule: Any, ctx: Any, *rest: Any) -> None:
        def counting(node: Any, sweep: Any) -> Any:
            calls[name] = calls.get(name, 0) + 1
            return rule(node, sweep)

        plain(graph, name, counting, ctx, *rest)

    pipeline.run_rule = run_rule
    try:
        yield calls
    finally:
        pipeline.run_rule = plain


@contextmanager
def timed(holder: Any, name: str) -> Iterator[list[float]]:
    """Adds up the CPU seconds of a function of a module or class while the context is active."""
    spent, plain = [0.0], getattr(holder, name)

    def timing(*args: Any, **options: Any) -> Any:
        started = time.process_time()
        try:
            return plain(*args, **options)
        finally:
            spent[0] += time.process_time() - started

    setattr(holder, name, timing)
    try:
        yield spent
    finally:
        setattr(holder, name, plain)


def measure_all(models: list[Path], devices: list[Path]) -> None:
    """Plans each model for each device and prints the times."""
    import gc

    rows = []
    for device in devices:
        measure(models[0], device)  # texts of kernels are read once
        for model in models:
            gc.collect()
            try:
                rows.append(measure(model, device))
            except Exception as e:
                print(f"{model.stem} on {device.stem}: {type(e).__name__}: {e}")
    print_stages(rows)


def print_stages(rows: list[Stages]) -> None:
    """Prints a line per plan, those closest to their budget first."""
    names = ("import", "passes", "place", "plan", "memory", "weights")
    print(f"{'model':36} {'device':14} nodes launches  calls " + " ".join(f"{n:>7}" for n in names), end="")
    print("   total of budget   new size")
    for row in sorted(rows, key=lambda r: -r.total / max(0.1, budget(r.nodes))):
        parts = " ".join(f"{row.seconds.get(n, 0.0):7.3f}" for n in names)
        share = 100 * row.total / budget(max(1, row.nodes))
        new = "" if row.new_size is None else f"{row.new_size:10.3f}" + ("" if row.same else " (planned anew)")
        part = "" if row.whole else " first segment"
        print(f"{row.model:36} {row.device:14} {row.nodes:5} {row.launches:8} {row.calls:6} {parts}", end=" ")
        print(f"{row.total:7.3f} {share:7.0f} % {new}{part}")
