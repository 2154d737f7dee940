"""Times process start to first result, against onnxruntime and OpenVINO, each in its own process.


    python -m benchmarks.startup ../shared/models/mobilenetv2_fp32.onnx
    python -m benchmarks.startup model.onnx --shape input:1x3x224x224 --repeats 5 --json start.json

Four starts of Opalite are measured: from the .onnx file with empty caches, with warm caches by the cached plan and
without one, and from a bundle. Engines alternate in each round; the best round counts. `process` covers interpreter,
imports, session, first run and exit. `opalite's parts` are seconds between marks inside one process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FEEDS = """
import sys, json
shapes = json.loads(sys.argv[2])
def feeds():
    import numpy as np
    return {n: np.zeros(shape, dtype) for n, (shape, dtype) in shapes.items()}
"""
_OPALITE = (
    _FEEDS
    + """
import numpy, opalite
session = opalite.InferenceSession(sys.argv[1], device="cpu", precision="fp32")
session.run(None, feeds())
"""
)
_ONNXRUNTIME = (
    _FEEDS
    + """
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[3])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, feeds())
"""
)
_OPENVINO = (
    _FEEDS
    + """
import numpy, openvino
core = openvino.Core()
core.set_property({"CACHE_DIR": sys.argv[4]})
found = core.read_model(sys.argv[1])
found.reshape({n: shape for n, (shape, _) in shapes.items()})
compiled = core.compile_model(found, "CPU", {"INFERENCE_NUM_THREADS": int(sys.argv[3])})
compiled(feeds())
"""
)
_PARTS = """
import json, sys, time
marks = []
last = time.perf_counter()
def mark(name):
    global last
    now = time.perf_counter()
    marks.append((name, now - last))
    last = now
path, shapes = sys.argv[1], json.loads(sys.argv[2])
import numpy as np
mark("import numpy")
import pyopencl
mark("import pyopencl")
import opalite
opalite.InferenceSession
mark("import opalite's session")
from opalite.cl.runtime import find_runtime
find_runtime("cpu")
mark("find devices, open a context")
if not path.endswith(".opal") and sys.argv[3] == "whole":
    import onnx
    mark("import onnx")
    import opalite.run.model.segment_runs
    mark("import the importer")
    import opalite.plan.planner
    mark("import passes and kernels")
session = opalite.InferenceSession(path, device="cpu", precision="fp32")
mark("session: read the file")
x = {n: np.zeros(shape, dtype) for n, (shape, dtype) in shapes.items()}
session.run(None, x)
t = session.last_timing
marks.append(("import and plan" if sys.argv[3] == "whole" else "decode the plan", t.import_s))
marks.append(("kernels from the cache, weights, arguments", t.build_s))
marks.append(("first run itself", t.total_s - t.import_s - t.build_s))
print(json.dumps(marks))
"""


@dataclass(frozen=True)
class Start:
    """One way to start: name, command, environment, and untimed preparation."""

    name: str
    command: Sequence[str]
    env: dict[str, str]
    before: Callable[[], None] | None = None

    def measure(self) -> float:
        """Seconds from starting the process to its end."""
        if self.before is not None:
            self.before()
        started = time.perf_counter()
        done = subprocess.run(self.command, env=os.environ | self.env, capture_output=True, text=True)
        seconds = time.perf_counter() - started
        if done.returncode:
            raise RuntimeError(f"{self.name} failed:\n{done.stderr[-2000:]}")
        return seconds


def make_starts(model: Path, shapes: dict[str, Any], threads: int, folder: Path, cold: bool) -> list[Start]:
    """The starts of installed engines; Opalite's bundle and caches are in `folder`."""
    import opalite

    bundle = folder / "model.opal"
    opalite.compile(model, bundle, shapes={n: tuple(s) for n, (s, _) in shapes.items()}, device="cpu", precision="fp32")
    text = json.dumps(shapes)

    def script(code: str, path: Path, *more: str) -> list[str]:
        return [sys.executable, "-c", code, str(path), text, str(threads), *more]

    warm, empty = folder / "warm", folder / "empty"
    cache = {"OPALITE_CACHE_DIR": str(warm), "POCL_MAX_PTHREAD_COUNT": str(threads)}
    starts = [
        Start("opalite .opal", script(_OPALITE, bundle), cache),
        Start("opalite .onnx", script(_OPALITE, model), cache),
        Start("opalite .onnx, no plan kept", script(_OPALITE, model), cache | {"OPALITE_PLAN_CACHE": "0"}),
    ]
    if cold:

        def clear() -> None:
            shutil.rmtree(empty, ignore_errors=True)

        first = cache | {"OPALITE_CACHE_DIR": str(empty)}
        starts.append(Start("opalite .onnx, caches empty", script(_OPALITE, model), first, clear))
        starts.append(Start("opalite .opal, caches empty", script(_OPALITE, bundle), first, clear))
        trusted = first | {"OPALITE_TRUST_BUNDLES": "1"}
        starts.append(Start("opalite .opal, caches empty, trusted", script(_OPALITE, bundle), trusted, clear))
    if _has("onnxruntime"):
        starts.append(Start("onnxruntime", script(_ONNXRUNTIME, model), {}))
    if _has("openvino"):
        starts.append(Start("openvino, its cache", script(_OPENVINO, model, str(folder / "openvino")), {}))
    starts.append(Start("python, numpy", [sys.executable, "-c", "import numpy"], {}))
    return starts


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def measure(starts: Sequence[Start], repeats: int) -> dict[str, list[float]]:
    """Seconds of each start by round, after one start of each that fills its caches."""
    for start in starts:
        if start.before is None:
            start.measure()
    found: dict[str, list[float]] = {s.name: [] for s in starts}
    for _ in range(repeats):
        for start in starts:
            found[start.name].append(start.measure())
    return found


def measure_parts(
    path: Path, shapes: dict[str, Any], cache: Path, whole: bool, repeats: int
) -> list[tuple[str, float]]:
    """Least seconds of each part of a start with warm caches."""
    command = [sys.executable, "-c", _PARTS, str(path), json.dumps(shapes), "whole" if whole else "plan"]
    env = os.environ | {"OPALITE_CACHE_DIR": str(cache), "OPALITE_PLAN_CACHE": "0" if whole else "1"}
    best: dict[str, float] = {}
    for _ in range(repeats):
        started = time.perf_counter()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        total = time.perf_counter() - started
        marks = json.loads(done.stdout)
        rest = total - sum(s for _, s in marks)
        for name, seconds in [("python starts and ends", rest), *marks]:
            best[name] = min(best.get(name, seconds), seconds)
    return list(best.items())


def find_shapes(model: Path, given: Sequence[str]) -> dict[str, Any]:
    """(shape, dtype) of every input; open dimensions must be `given` as NAME:1x3x224x224, or are 1."""
    import opalite

    session = opalite.InferenceSession(model, device="cpu", precision="fp32")
    known = {name: tuple(map(int, dims.split("x"))) for name, _, dims in (g.rpartition(":") for g in given)}
    examples = session.example_shapes()
    found = {}
    for arg in session.get_inputs():
        assert arg.dtype is not None, f"{arg.name} is no tensor"
        found[arg.name] = (list(known.get(arg.name, examples[arg.name])), arg.dtype.np.name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="NAME:DIMS")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-cold", action="store_true", help="leave out starts with empty caches")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    shapes = find_shapes(args.model, args.shape)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["OPALITE_CACHE_DIR"] = str(folder / "warm")
        times = measure(make_starts(args.model, shapes, args.threads, folder, not args.no_cold), args.repeats)
        kinds = {
            ".opal": (folder / "model.opal", False),
            ".onnx": (args.model, False),
            ".onnx, no plan kept": (args.model, True),
        }
        parts = {
            name: measure_parts(path, shapes, folder / "warm", whole, args.repeats)
            for name, (path, whole) in kinds.items()
        }
    print(f"{args.model.name} on {platform.processor() or platform.machine()}, {args.threads} threads, seconds\n")
    print("| start | best | median | worst |\n| --- | ---: | ---: | ---: |")
    for name, seconds in times.items():
        s = sorted(seconds)
        print(f"| {name} | {s[0]:.2f} | {s[len(s) // 2]:.2f} | {s[-1]:.2f} |")
    for name, found in parts.items():
        print(f"\n| opalite's parts, {name} | ms |\n| --- | ---: |")
        for part, seconds in found:
            print(f"| {part} | {1e3 * seconds:.0f} |")
    if args.json:
        args.json.write_text(json.dumps({"model": args.model.name, "seconds": times, "parts": parts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
