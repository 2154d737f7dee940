"""Compares untuned and tuned programs of each model, alternately and without megakernels, as tuning itself does.


python -m benchmarks.tuned_speedup resnet18 mobilenet_v2 --level fast --json tuned.json
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


def tune(name: str, level: str) -> dict[str, Any]:
    """Milliseconds of a run untuned and tuned, and whether the tuned program was kept."""
    with TemporaryDirectory() as folder:
        path = Path(name)
        if name in NAMES:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(build(name), path)
        session = opalite.InferenceSession(path, precision="fp32")
        reports = session.tune(stored_feeds(path) or random_feeds(onnx.load(path)), level)
    verdicts = [r.verdict for r in reports if r.verdict is not None]
    untuned, tuned = (1e3 * sum(getattr(v, k) for v in verdicts) for k in ("untuned_s", "tuned_s"))
    row = {"model": path.stem, "level": level, "untuned_ms": untuned, "tuned_ms": tuned}
    return row | {"kept": all(v.tuned for v in verdicts)}


def main() -> None:
    """Tune the models named on the command line and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuned_speedup",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", help="names of benchmarks.models or .onnx files")
    parser.add_argument("--level", default="fast")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print("| model | untuned ms | tuned ms | untuned / tuned | kept |\n| --- | ---: | ---: | ---: | --- |", flush=True)
    rows = []
    for name in options.models:
        r = tune(name, options.level)
        rows.append(r)
        ratio = f"{r['untuned_ms'] / r['tuned_ms']:.2f}" if r["tuned_ms"] else "the same program"
        kept = "yes" if r["kept"] else "no"
        print(f"| {r['model']} | {r['untuned_ms']:.3g} | {r['tuned_ms']:.3g} | {ratio} | {kept} |", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
