"""Runs several processes on one device: checks bit-equal answers, the longest run, and memory against its bound.


    python -m benchmarks.concurrent_processes --precision fp16 --runs 1000 --json concurrent.json
    python -m benchmarks.concurrent_processes --device cpu --networks squeezenet1_1,vit_tiny --runs 50
    python -m benchmarks.concurrent_processes --busy 2 --networks ../shared/models/mnist_cntk.onnx

Each process opens each network (benchmarks/models) in turn, and all start its runs at the same moment. `--warm` runs
come first, in which kernels are built and strategies are chosen. `differing` counts runs whose outputs differ in any
bit from the process's first run; `first` says whether the first outputs of all processes are equal. `bound` is the
arena's size over the plan's lower bound, the largest sum of simultaneously live tensors. Exit status 1 if an answer
differs, a process ends without a result, or takes longer than `--limit`.

With `--busy N`, one process runs each network (a name or a file) while N others keep a core busy each. It alternates
with onnxruntime by default settings and with two threads, on the CPU: medians, 99th percentiles, ratio of medians.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any

import numpy as np

import onnx
import opalite

from .models import NAMES, build
from .models.feeds import random_feeds, stored_feeds

NETWORKS = "mobilenet_v2,resnet50,vit_b16,densenet121"
_TURNS = 10
"""In which engines run, beside busy processes."""
_STEADY = 60
"""Runs in which launches are linked, tried and timed."""


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.concurrent_processes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--networks", default=NETWORKS, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1000, help="of each network in each process")
    parser.add_argument("--warm", type=int, default=_STEADY, help="runs before")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a core busy each")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a network; more is a hang")
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    return parser.parse_args()


def digest(outputs: Sequence[Any]) -> str:
    """A hash of arrays."""
    made = hashlib.sha256()
    for array in outputs:
        made.update(array.tobytes())
    return made.hexdigest()


def runs_of(name: str, options: argparse.Namespace, together: Barrier) -> dict[str, Any]:
    """The record of one process for one network."""
    model = build(name, options.batch)
    feeds = random_feeds(model, seed=1)
    with opalite.InferenceSession(
        model.SerializeToString(), device=options.device, precision=options.precision
    ) as session:
        for _ in range(2):
            for _ in range(options.warm // 2):
                session.run(None, feeds)
            session.settle()
        first = digest(session.run(None, feeds))
        differing, times = 0, []
        together.wait(options.limit)
        for _ in range(options.runs):
            started = time.perf_counter()
            outputs = session.run(None, feeds)
            times.append(time.perf_counter() - started)
            differing += digest(outputs) != first
        return {
            "network": name,
            "first": first,
            "differing": differing,
            "median_ms": median(times) * 1e3,
            "longest_ms": max(times) * 1e3,
            "strategy": session.last_timing.strategy,
            "arena_mb": session.stats().bytes["arena"] / 1e6,
            "bound_mb": sum(m.lower_bound for m in session.explain().memory) / 1e6,
        }


def process(options: argparse.Namespace, together: Barrier, found: Any) -> None:
    """One process: a record or an error for each network."""
    for name in options.networks.split(","):
        try:
            found.put(runs_of(name, options, together))
        except Exception as e:
            together.abort()
            found.put({"network": name, "failed": f"{type(e).__name__}: {e}"[:1000]})
            return


def gather(found: Any, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The records of all processes for a network; late ones count as failures."""
    records = []
    until = time.monotonic() + options.limit
    for _ in range(options.processes):
        try:
            records.append(found.get(timeout=max(0.1, until - time.monotonic())))
        except Empty:
            records.append({"network": name, "failed": f"no result within {options.limit:g} s"})
    return records


def summary(name: str, records: Sequence[dict[str, Any]], runs: int) -> dict[str, Any]:
    """One row from all processes' records."""
    failed = [r["failed"] for r in records if "failed" in r]
    if failed:
        return {"network": name, "failed": failed[0]}
    return {
        "network": name,
        "runs": runs * len(records),
        "differing": sum(r["differing"] for r in records),
        "first": "same" if len({r["first"] for r in records}) == 1 else "differ",
        "median_ms": median(r["median_ms"] for r in records),
        "longest_ms": max(r["longest_ms"] for r in records),
        "strategy": records[0]["strategy"],
        "arena_mb": records[0]["arena_mb"],
        "bound": records[0]["arena_mb"] / records[0]["bound_mb"] if records[0]["bound_mb"] else 1.0,
    }


def run_with_busy_cores(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One row of a network beside busy processes, for each engine."""
    import onnxruntime

    path = Path(name)
    model = onnx.load(path) if path.suffix == ".onnx" else build(name, options.batch)
    feeds = (stored_feeds(path) if path.suffix == ".onnx" else None) or random_feeds(model, seed=1)
    raw = model.SerializeToString()
    session = opalite.InferenceSession(raw, device="cpu", precision="fp32")
    runs: dict[str, Any] = {"opalite": session}
    for label, threads in (("onnxruntime", 0), ("onnxruntime, 2 threads", 2)):
        wanted = onnxruntime.SessionOptions()
        wanted.intra_op_num_threads, wanted.log_severity_level = threads, 4
        runs[label] = onnxruntime.InferenceSession(raw, wanted, providers=["CPUExecutionProvider"])
    for _ in range(3):
        for _ in range(options.warm // 2):
            session.run(None, feeds)
        session.settle()
    times: dict[str, list[float]] = {label: [] for label in runs}
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        for _ in range(_TURNS):
            for label, engine in runs.items():
                for _ in range(max(1, options.runs // _TURNS)):
                    started = time.perf_counter()
                    engine.run(None, feeds)
                    times[label].append(time.perf_counter() - started)
    finally:
        for other in busy:
            other.kill()
            other.wait()
    row: dict[str, Any] = {"network": path.stem}
    for label, seconds in times.items():
        row[label] = f"{1e3 * median(seconds):.3f} ms, p99 {1e3 * float(np.percentile(seconds, 99)):.2f}"
    best = min(median(seconds) for label, seconds in times.items() if label != "opalite")
    return {**row, "ratio": f"{median(times['opalite']) / best:.2f}"}


def main() -> int:
    """See the module's docstring."""
    options = parse_options()
    if options.busy:
        for name in options.networks.split(","):
            print("  ".join(f"{k} {v}" for k, v in run_with_busy_cores(name, options).items()), flush=True)
        return 0
    context = multiprocessing.get_context("spawn")
    found: Any = context.Queue()
    together = context.Barrier(options.processes)
    workers = [
        context.Process(target=process, args=(options, together, found), daemon=True) for _ in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    rows = []
    for name in options.networks.split(","):
        row = summary(name, gather(found, name, options), options.runs)
        rows.append(row)
        shown = (f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        print("  ".join(shown), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        if "failed" in row:
            break
    for worker in workers:
        worker.join(5)
        if worker.is_alive():
            worker.kill()
    return int(any("failed" in r or r["differing"] or r["first"] != "same" for r in rows))


if __name__ == "__main__":
    sys.exit(main())
