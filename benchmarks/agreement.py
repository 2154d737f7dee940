"""Compares models by images, half storage, half sums and generic kernels with float32 in buffers.


    python -m benchmarks.agreement --models FOLDER --device gpu --output benchmarks/results/agreement-h200
    python -m benchmarks.agreement --models FOLDER --device cpu --configurations generic --quantised

FOLDER holds NAME.onnx with NAME.npz ("in:..." and "out:..." arrays); a manifest.json may list models. Each figure is
the largest difference of an output from fp32 in buffers, as a share of that output's largest magnitude (integers: the
share of differing elements). `stored` compares fp32 in buffers with the outputs of the .npz. If
benchmarks/policies/NAME.json exists, `fp16 policy` uses it and must agree, since plain fp16 loses too much there. Exit
status 1 if a difference exceeds the tolerance of `opalite.ir.tolerances`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import opalite
from opalite.ir.precision import Precision
from opalite.ir.tolerances import relative_difference, tolerance
from opalite.plan.planner import PlanOptions
from opalite.run.model.background.graph_compiler import Compiler

POLICIES = Path(__file__).parent / "policies"
SEEDED = ("squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2", "vit_tiny")
POLICY = "fp16 policy"
GENERAL = "generic"
CONFIGURATIONS: Mapping[str, tuple[str, str]] = {
    GENERAL: ("fp32", "buffer"),
    "image fp32": ("fp32", "image"),
    "fp16": ("fp16", "buffer"),
    "image fp16": ("fp16", "image"),
    POLICY: ("", "buffer"),
    "image policy": ("", "image"),
    "fp16_fast": ("fp16_fast", "buffer"),
}


@dataclass(frozen=True)
class Problem:
    """A model with its inputs and known outputs."""

    name: str
    model: Any
    feeds: Mapping[str, Any]
    wanted: Mapping[str, Any]

    @property
    def policy(self) -> Path:
        """The path of its mixed-precision policy, which may not exist."""
        return POLICIES / f"{self.name.partition('/')[0]}.json"


@dataclass(frozen=True)
class Result:
    """One model in one configuration. images: launches of image kernels. note: further remarks."""

    model: str
    configuration: str
    difference: float
    allowed: float
    images: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def good(self) -> bool:
        """Whether the outputs agree; NaN does not."""
        return self.difference <= self.allowed


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agreement", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, help="folder of real models")
    parser.add_argument("--only", default="", help="names of real models, with commas; by default all float ones")
    parser.add_argument("--seeded", default=",".join(SEEDED), help="models of benchmarks.models, with commas")
    parser.add_argument("--quantised", action="store_true", help="real models of 8-bit integers, too")
    parser.add_argument("--configurations", default=",".join(CONFIGURATIONS))
    parser.add_argument("--device", default=None)
    parser.add_argument("--commit", default="", help="what to record as measured; by default what git says")
    parser.add_argument("--output", type=Path, help="path without suffix of the .json and .md to write")
    return parser.parse_args()


def listed(folder: Path) -> list[dict[str, Any]]:
    """The models in the folder's manifest.json; without one, each NAME.onnx with a NAME.npz."""
    manifest = folder / "manifest.json"
    if manifest.exists():
        rows: list[dict[str, Any]] = json.loads(manifest.read_text())
        return rows
    found = [p for p in sorted(folder.glob("*.onnx")) if p.with_suffix(".npz").exists()]
    if not found:
        sys.exit(f"{folder} has no manifest.json, and no NAME.onnx with inputs and outputs in NAME.npz")
    return [{"name": p.stem, "file": p.name, "tier": "", "cases": [{"file": f"{p.stem}.npz"}]} for p in found]


def problems(options: argparse.Namespace) -> Iterator[Problem]:
    """Every requested float model with each of its inputs."""
    only = set(filter(None, options.only.split(",")))
    if options.models is not None:
        for row in listed(options.models):
            is_left_out = row["tier"].startswith("int8") and not options.quantised
            if is_left_out or (only and row["name"] not in only):
                continue
            for i, case in enumerate(row["cases"]):
                with np.load(options.models / case["file"]) as z:
                    feeds = {k[3:]: z[k] for k in z.files if k.startswith("in:")}
                    wanted = {k[4:]: z[k] for k in z.files if k.startswith("out:")}
                name = row["name"] + (f"/{i + 1}" if i else "")
                yield Problem(name, options.models / row["file"], feeds, wanted)
    for name in filter(None, options.seeded.split(",")):
        from .models import build
        from .models.feeds import random_feeds

        model = build(name)
        yield Problem(name, model.SerializeToString(), random_feeds(model, seed=1), {})


def run(problem: Problem, device: str | None, precision: str, memory: str) -> tuple[list[Any], Any]:
    """(outputs, explanation) of one configuration."""
    with opalite.InferenceSession(problem.model, device=device, precision=precision, memory=memory) as session:
        return session.run(None, problem.feeds), session.explain()


def run_general(problem: Problem, device: str | None) -> list[Any]:
    """The outputs by generic kernels, and by optimized ones where there is no generic one."""
    asked = Compiler.plan_options

    def general(self: Compiler, *args: Any, **more: Any) -> PlanOptions:
        return replace(asked(self, *args, **more), tier="generic")

    with (
        patch.dict(os.environ, OPALITE_PLAN_CACHE="0"),  # no plan is kept that is of another tier than it seems
        patch.object(Compiler, "plan_options", general),
        opalite.InferenceSession(problem.model, device=device, precision="fp32", memory="buffer") as session,
    ):
        return session.run(None, problem.feeds)


def worst(got: list[Any], want: list[Any]) -> float:
    """The largest relative difference of an output."""
    found = [relative_difference(np.asarray(g), np.asarray(w)) for g, w in zip(got, want, strict=True)]
    return float(np.max(found)) if found else 0.0


def compare(problem: Problem, options: argparse.Namespace, half_sums: bool) -> Iterator[Result]:
    """A result for each configuration that applies."""
    started = time.perf_counter()
    with opalite.InferenceSession(problem.model, device=options.device, precision="fp32", memory="buffer") as session:
        want = session.run(None, problem.feeds)
        names = [o.name for o in session.get_outputs()]
    fp32 = tolerance("model", Precision.FP32)
    if problem.wanted:
        seconds = time.perf_counter() - started
        yield Result(problem.name, "stored", worst(want, [problem.wanted[n] for n in names]), fp32, 0, seconds)
    for label in options.configurations.split(","):
        precision, memory = CONFIGURATIONS[label]
        if (not precision and not problem.policy.exists()) or (precision == "fp16_fast" and not half_sums):
            continue
        started = time.perf_counter()
        try:
            if label == GENERAL:
                got = run_general(problem, options.device)
                yield Result(problem.name, label, worst(got, want), fp32, 0, time.perf_counter() - started)
                continue
            got, explained = run(problem, options.device, precision or str(problem.policy), memory)
        except opalite.OpaliteError as e:
            yield Result(problem.name, label, float("inf"), 0.0, 0, 0.0, str(e).partition("\n")[0])
            continue
        column = Precision.FP32 if precision == "fp32" else Precision(precision or "fp16")
        images = sum(n.launches for n in explained.nodes if any("IMAGE2D" in p for p in n.places))
        note = "overflowed: ran in fp32" if any("overflowed" in n for n in explained.notes) else ""
        allowed = tolerance("model", column)
        yield Result(problem.name, label, worst(got, want), allowed, images, time.perf_counter() - started, note)


def failed(results: list[Result]) -> list[Result]:
    """Results that must agree and do not; with a policy, plain half need not agree."""
    mended = {r.model for r in results if r.configuration == POLICY}
    excused = {"fp16", "image fp16", "fp16_fast"}
    return [r for r in results if not r.good and not (r.model in mended and r.configuration in excused)]


def markdown(results: list[Result], head: Mapping[str, str]) -> str:
    """A table with a line per model and a column per configuration; values beyond the tolerance are bold."""
    columns = list(dict.fromkeys(["stored", *CONFIGURATIONS]))
    columns = [c for c in columns if any(r.configuration == c for r in results)]
    by_model: dict[str, dict[str, Result]] = {}
    for r in results:
        by_model.setdefault(r.model, {})[r.configuration] = r

    def cell(r: Result | None) -> str:
        if r is None:
            return ""
        text = f"{r.difference:.1e}" + (" (fp32)" if r.note.startswith("overflowed") else "")
        return text if r.good else f"**{text}**"

    lines = [
        f"# Agreement on {head['device']}",
        "",
        f"Measured by `python -m benchmarks.agreement` at commit {head['commit']}, {head['driver']}. Largest",
        "difference of an output from fp32 in buffers, as a share of its largest magnitude; `stored`: fp32 in buffers",
        "beside onnxruntime's. Bold: beyond the tolerance; `fp16 policy` is what the model's policy makes of it.",
        "(fp32): half overflowed, and the session went over to fp32 on its own.",
        "",
        "| model | " + " | ".join(columns) + " |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for model, found in by_model.items():
        lines.append(f"| {model} | " + " | ".join(cell(found.get(c)) for c in columns) + " |")
    lines += ["", "Allowed: " + "; ".join(_allowed(results)) + "."]
    return "\n".join(lines) + "\n"


def _allowed(results: list[Result]) -> list[str]:
    found = {(r.configuration, r.allowed) for r in results if r.allowed}
    return [f"{c} {a:g}" for c, a in sorted(found)]


def commit() -> str:
    """The commit of the working tree, or ''."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    """Exit status 1 if something disagrees."""
    options = parse_options()
    os.environ["OPALITE_TIERS"] = "0"  # what is compared is not to be of the general tier by itself
    results: list[Result] = []
    info = None
    for problem in problems(options):
        if info is None:
            with opalite.InferenceSession(problem.model, device=options.device, precision="fp32") as session:
                info = session.device
        for r in compare(problem, options, info.half_sums):
            mark = "ok " if r.good else "BAD"
            extra = f"  {r.images} launches on images" if r.images else ""
            print(
                f"{mark} {r.model:24} {r.configuration:12} {r.difference:9.2e} of {r.allowed:7.1e} "
                f"{r.seconds:5.1f} s{extra}  {r.note}",
                flush=True,
            )
            results.append(r)
    if info is None:
        print("no models: give --models or --seeded")
        return 2
    bad = failed(results)
    print(f"{len(results)} comparisons on {info.name}, {len(bad)} disagree")
    if options.output is not None:
        head = {"device": info.name, "driver": f"driver {info.driver}", "commit": options.commit or commit()}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        records = [asdict(r) | {"good": r.good} for r in results]
        options.output.with_suffix(".json").write_text(json.dumps(head | {"results": records}, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(markdown(results, head))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
