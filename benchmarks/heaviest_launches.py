"""Profiles the heaviest launches of models against the machine's measured peaks.


    python -m benchmarks.heaviest_launches resnet18 mobilenet_v2 --top 3 --json kernels.json

Each model is profiled launch by launch in several rounds. The peaks are measured after each round, since those of a
virtual machine change. The table has medians, the spread of the share over rounds, and `best`: the least time of all
runs against the highest peak of all rounds, which the code reaches if nothing else uses the core. A Winograd
convolution counts the operations of a direct one, so it may exceed the multiply-add peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import opalite
from opalite.run.report.profile import Peaks, Profile

from .models import NAMES, build
from .models.feeds import random_feeds, stored_feeds


def profile(name: str, iterations: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of a model's launches, the heaviest first: kernel, node, seconds, share, GFLOP/s and share of the peaks.

    Each round is a profile with the peaks of that time; a row holds the medians of the rounds.
    """
    with TemporaryDirectory() as folder:
        path = Path(name)
        if name in NAMES:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(build(name), path)
        feeds = stored_feeds(path) or random_feeds(onnx.load(path))
        session = opalite.InferenceSession(path, precision="fp32")
        found = [launches(path.stem, session.profile(feeds, iterations)) for _ in range(rounds)]
    rows = [median([r[node] for r in found]) for node in found[0]]
    return sorted(rows, key=lambda r: -r["seconds"])


def launches(model: str, found: Profile) -> dict[str, dict[str, Any]]:
    """A row for each node of one profile."""
    assert found.peaks is not None
    kernels = {r.node: r.kernel for r in found.records}
    least_s: dict[tuple[str, int], float] = {}
    for r in found.records:
        least_s[r.node, r.run] = least_s.get((r.node, r.run), 0.0) + r.times.seconds
    rows = {}
    for r in found.by_node():
        least = found.peaks.attainable(r.flops, r.nbytes)
        bound = "multiply-adds" if r.flops / found.peaks.flops >= r.nbytes / found.peaks.bandwidth else "memory"
        row = {"model": model, "kernel": kernels[r.name], "node": r.name, "seconds": r.seconds, "share": r.share}
        row |= {"gflops": r.gflops, "gbytes": r.gbytes, "of_peak": least / r.seconds, "bound": bound}
        row["least_seconds"] = min(t for (node, _), t in least_s.items() if node == r.name)
        row["flops"], row["nbytes"] = r.flops, r.nbytes
        rows[r.name] = row | {"peak_gflops": found.peaks.flops / 1e9, "peak_gbytes": found.peaks.bandwidth / 1e9}
    return rows


def median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the medians of numbers, with the spread of `of_peak` over the rounds."""
    numbers = {k: statistics.median(r[k] for r in rows) for k, v in rows[0].items() if isinstance(v, float)}
    shares = [r["of_peak"] for r in rows]
    peaks = Peaks(1e9 * max(r["peak_gflops"] for r in rows), 1e9 * max(r["peak_gbytes"] for r in rows))
    best = peaks.attainable(numbers["flops"], numbers["nbytes"]) / min(r["least_seconds"] for r in rows)
    return rows[0] | numbers | {"of_peak_from": min(shares), "of_peak_to": max(shares), "of_peak_best": best}


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line a launch."""
    lines = [
        "| model | kernel | us | share | GFLOP/s | GB/s | of the roofline | from | to | best | bound by |",
        "| --- | --- |" + " ---: |" * 8 + " --- |",
    ]
    for r in rows:
        lines.append(
            f"| {r['model']} | {r['kernel']} | {1e6 * r['seconds']:.0f} | {100 * r['share']:.0f} % | {r['gflops']:.0f} "
            f"| {r['gbytes']:.0f} | {100 * r['of_peak']:.0f} % | {100 * r['of_peak_from']:.0f} "
            f"| {100 * r['of_peak_to']:.0f} | {100 * r['of_peak_best']:.0f} | {r['bound']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Profile the models named on the command line and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.heaviest_launches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", help="names of benchmarks.models or .onnx files")
    parser.add_argument("--top", type=int, default=3, help="launches of each model to show")
    parser.add_argument("--iterations", type=int, default=8, help="profiled runs of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file for all launches")
    options = parser.parse_args()
    found = {name: profile(name, options.iterations, options.rounds) for name in options.models}
    print(markdown([row for rows in found.values() for row in rows[: options.top]]))
    if options.json is not None:
        options.json.write_text(json.dumps([row for rows in found.values() for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
