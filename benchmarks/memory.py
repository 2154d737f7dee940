"""Peak resident memory of one process that runs a model once and again, beside onnxruntime; and what each part takes.

    python -m benchmarks.memory ../shared/models/mobilenetv2_fp32.onnx
    python -m benchmarks.memory model.onnx --shape input:1x3x224x224 --json memory.json

Figures are the kernel's: VmHWM, the peak, and VmRSS with its share of files (libraries, and weights that are mapped
from a bundle, which processes share) and of memory of the process's own. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .start import find_shapes

_SAY = """
import json, sys
rows = []
def say(part):
    with open("/proc/self/status") as f:
        found = dict(line.split(":", 1) for line in f)
    rows.append([part, *(int(found[k].split()[0]) for k in ("VmHWM", "VmRSS", "RssFile", "RssAnon"))])
path, shapes, threads = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
say("python")
import numpy as np
say("numpy")
x = {n: np.zeros(shape, dtype) for n, (shape, dtype) in shapes.items()}
"""
_OPALITE = (
    _SAY
    + """
import pyopencl
say("pyopencl")
import opalite
opalite.InferenceSession
say("opalite's modules")
from opalite.cl.runtime import find_runtime
rt = find_runtime("cpu")
say("PoCL with LLVM, a context")
if path.endswith(".onnx") and sys.argv[4] == "whole":
    import opalite.run.model.onnx_model, opalite.plan.planner
    say("onnx, importer, passes, kernels")
session = opalite.InferenceSession(path, device="cpu", precision="fp32")
say("session: the file")
session.run(None, x)
say("weights, arena, kernels, first run")
session.run(None, x)
say("second run")
print(json.dumps(rows))
"""
)
_ONNXRUNTIME = (
    _SAY
    + """
import onnxruntime
say("onnxruntime")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
say("session: the file, weights packed")
session.run(None, x)
say("first run")
session.run(None, x)
say("second run")
print(json.dumps(rows))
"""
)

Row = list[Any]
"""Part, and KiB: peak, resident, of files, of its own."""


def measure(code: str, path: Path, shapes: dict[str, Any], threads: int, env: dict[str, str], mode: str) -> list[Row]:
    """The rows of one process, run twice so that caches are warm."""
    command = [sys.executable, "-c", code, str(path), json.dumps(shapes), str(threads), mode]
    for _ in range(2):
        done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
    rows: list[Row] = json.loads(done.stdout)
    return rows


def show(name: str, rows: Sequence[Row]) -> None:
    """A table in MB (10^6 bytes)."""
    print(f"\n| {name} | peak | resident | of files | own | added |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    before = 0
    for part, *kib in rows:
        peak, resident, files, own = (v * 1024 / 1e6 for v in kib)
        print(f"| {part} | {peak:.1f} | {resident:.1f} | {files:.1f} | {own:.1f} | {resident - before:+.1f} |")
        before = resident


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="NAME:DIMS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    shapes = find_shapes(args.model, args.shape)
    import opalite

    with tempfile.TemporaryDirectory() as temporary:
        bundle = Path(temporary) / "model.opal"
        opalite.compile(
            args.model, bundle, shapes={n: tuple(s) for n, (s, _) in shapes.items()}, device="cpu", precision="fp32"
        )
        env = {"OPALITE_CACHE_DIR": temporary, "POCL_MAX_PTHREAD_COUNT": str(args.threads)}
        whole = env | {"OPALITE_PLANS": "0"}
        found = {
            "opalite .opal": measure(_OPALITE, bundle, shapes, args.threads, env, "plan"),
            "opalite .onnx": measure(_OPALITE, args.model, shapes, args.threads, env, "plan"),
            "opalite .onnx, no plan kept": measure(_OPALITE, args.model, shapes, args.threads, whole, "whole"),
            "onnxruntime": measure(_ONNXRUNTIME, args.model, shapes, args.threads, {}, ""),
        }
    print(f"{args.model.name}, {args.threads} threads, MB\n")
    print("| process | peak | above onnxruntime |\n| --- | ---: | ---: |")
    base = found["onnxruntime"][-1][1]
    for name, rows in found.items():
        peak = rows[-1][1]
        print(f"| {name} | {peak * 1024 / 1e6:.1f} | {(peak - base) * 1024 / 1e6:+.1f} |")
    for name, rows in found.items():
        show(name, rows)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
