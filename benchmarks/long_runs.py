"""Runs many models many times with default settings: checks that answers stay equal and the device is not lost.


    python -m benchmarks.long_runs inception_v3 densenet121 timm:dpn68 path/to/model.onnx --runs 200 --parallel 14

Names are those of `benchmarks.torch_models`; paths are ONNX files. Each row (model, precision) has its own process. It
runs until nothing is built or linked in the background, then `--runs` times, and compares each answer with the first.
Up to `--parallel` rows use the device at a time. An answer is right if the norm of the difference is at most 0.001
(fp32) or 0.05 (fp16) of its norm, since later programs add in another order. The last line counts the right rows; exit
status 1 if not all are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import opalite

LIMIT = {"fp32": 1e-3, "fp16": 5e-2}
BEFORE = 22  # runs after which launches are linked


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.long_runs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--precision", default="fp32,fp16")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def find_model(name: str, folder: Path) -> Path:
    """The file of a model, exported to `folder` unless `name` is a file."""
    if Path(name).suffix == ".onnx":
        return Path(name)
    from . import torch_models

    path = folder / f"{name.replace(':', '_')}.onnx"
    path.write_bytes(torch_models.export(torch_models.build(name), torch_models.sample(name, 1)))
    return path


def random_feeds(session: opalite.InferenceSession) -> dict[str, Any]:
    """Random inputs; integers are ones, open dimensions 1."""
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for a in session.get_inputs():
        shape = [n if isinstance(n, int) else 1 for n in a.shape or ()]
        kind = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32}
        dtype = np.dtype(kind.get(a.type, np.int64))
        feeds[a.name] = rng.random(shape).astype(dtype) if dtype.kind == "f" else np.ones(shape, dtype)
    return feeds


def run_row(name: str, precision: str, device: str, runs: int) -> dict[str, Any]:
    """The result of a row: largest error, milliseconds per run, execution strategy."""
    with TemporaryDirectory() as folder:
        session = opalite.InferenceSession(find_model(name, Path(folder)), device=device, precision=precision)
        feeds = random_feeds(session)
        first = np.asarray(session.run(None, feeds)[0], np.float64)
        session.settle()
        for _ in range(BEFORE):
            session.run(None, feeds)
        session.settle()
        error, times = 0.0, list[float]()
        for _ in range(runs):
            started = time.perf_counter()
            found = session.run(None, feeds)[0]
            times.append(time.perf_counter() - started)
            error = max(error, float(np.linalg.norm(found - first) / (np.linalg.norm(first) or 1)))
        return {
            "error": error,
            "ms": median(times) * 1e3,
            "strategy": session.last_trace.strategy,
            "queueing": session.explain().queueing,
        }


def run_in_process(name: str, precision: str, options: argparse.Namespace) -> bool:
    """Runs a row in its own process and prints the result; returns whether it was right."""
    command = [sys.executable, "-m", "benchmarks.long_runs", name, "--row", "--precision", precision]
    command += ["--device", options.device, "--runs", str(options.runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        row = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        print(f"{name} {precision}: FAILED, {done.stderr.strip().rpartition(chr(10))[2][:300]}", flush=True)
        return False
    is_right = bool(row["error"] <= LIMIT[precision] and row["strategy"] != "process")
    verdict = "right" if is_right else "WRONG"
    print(
        f"{name} {precision}: {verdict}, error {row['error']:.2g}, {row['ms']:.3f} ms, {row['strategy']}: "
        f"{'; '.join(row['queueing'])}",
        flush=True,
    )
    return is_right


def main() -> int:
    """Exit status."""
    options = parse_options()
    precisions = options.precision.split(",")
    if options.row:
        print(json.dumps(run_row(options.models[0], precisions[0], options.device, options.runs)))
        return 0
    rows = [(name, precision) for name in options.models for precision in precisions]
    with ThreadPoolExecutor(options.parallel) as pool:
        right = list(pool.map(lambda row: run_in_process(row[0], row[1], options), rows))
    print(f"{sum(right)} of {len(rows)} rows were right through {options.runs} runs")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
