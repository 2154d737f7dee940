"""The heaviest launches of models beside the machine's measured peaks: where the time goes, and how well it is spent.

    python -m benchmarks.kernels resnet18 mobilenet_v2 --top 3 --json kernels.json

Each model is profiled launch by launch; the peaks are measured in the same session right after it. A convolution by
Winograd's method is counted as the direct one that it replaces, so it may exceed the multiply-add peak.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import opalite

from .models import NAMES, build
from .models.feeds import random_feeds, stored_feeds


def profile(name: str, iterations: int) -> list[dict[str, Any]]:
    """Rows of a model's launches, the heaviest first: kernel, node, seconds, share, GFLOP/s and share of the peaks."""
    with TemporaryDirectory() as folder:
        path = Path(name)
        if name in NAMES:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(build(name), path)
        feeds = stored_feeds(path) or random_feeds(onnx.load(path))
        session = opalite.InferenceSession(path)
        found = session.profile(feeds, iterations)
    assert found.peaks is not None
    kernels = {r.node: r.kernel for r in found.records}
    rows = []
    for r in sorted(found.by_node(), key=lambda r: -r.seconds):
        least = found.peaks.attainable(r.flops, r.nbytes)
        bound = "multiply-adds" if r.flops / found.peaks.flops >= r.nbytes / found.peaks.bandwidth else "memory"
        row = {"model": path.stem, "kernel": kernels[r.name], "node": r.name, "seconds": r.seconds, "share": r.share}
        row |= {"gflops": r.gflops, "gbytes": r.gbytes, "of_peak": least / r.seconds, "bound": bound}
        rows.append(row | {"peak_gflops": found.peaks.flops / 1e9, "peak_gbytes": found.peaks.bandwidth / 1e9})
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line a launch."""
    lines = [
        "| model | kernel | us | share | GFLOP/s | GB/s | of the roofline | bound by |",
        "| --- | --- |" + " ---: |" * 5 + " --- |",
    ]
    for r in rows:
        lines.append(
            f"| {r['model']} | {r['kernel']} | {1e6 * r['seconds']:.0f} | {100 * r['share']:.0f} % | {r['gflops']:.0f} "
            f"| {r['gbytes']:.0f} | {100 * r['of_peak']:.0f} % | {r['bound']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Profile the models named on the command line and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="names of benchmarks.models or .onnx files")
    parser.add_argument("--top", type=int, default=3, help="launches of each model to show")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--json", type=Path, help="file for all launches")
    options = parser.parse_args()
    found = {name: profile(name, options.iterations) for name in options.models}
    print(markdown([row for rows in found.values() for row in rows[: options.top]]))
    if options.json is not None:
        options.json.write_text(json.dumps([row for rows in found.values() for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
