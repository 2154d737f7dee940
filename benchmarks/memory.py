"""Measures resident memory of a process that runs a model, against onnxruntime: peak, and after the last run.

    python -m benchmarks.memory resnet50 alexnet ../shared/models/mobilenetv2_fp32.onnx
    python -m benchmarks.memory model.onnx --shape input:1x3x224x224 --parts --json memory.json
    python -m benchmarks.memory matmul:8192x4096 gemm:8192x4096 --external

Models are files, names of benchmarks/models, which are built and saved first, or one product of 16 rows and a constant
matrix of the given size, in Gemm's case transposed. `--external` has the weights of models that are built here in a
file of their own; no plan is kept of such models. Each row of the table is from fresh
processes that open the model, run it and run it again (30 times, so that Opalite has joined its launches):

    empty caches   from the .onnx file; programs are built, so that both tiers of kernels take part (docs/tiers.md)
    first run      from the .onnx file, without a plan; the plan is kept. Programs are built already
    kept plan      from the .onnx file, by that plan
    onnxruntime    from the .onnx file

Figures are the kernel's: VmHWM, the peak, and VmRSS with its share of files (libraries) and of memory of the process's
own; of several rounds the median. `workers` is the most that a worker process took, beside the process itself, while
programs were built with empty caches. `--parts` shows what each step of a process adds. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .startup import find_shapes

if TYPE_CHECKING:
    import onnx

_SAY = """
import gc, json, resource, sys
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
_REST = """
for _ in range(28):
    session.run(None, x)
if hasattr(session, "settle"):
    session.settle()
    session.run(None, x)
gc.collect()
say("at rest")
rows.append(["workers", *[resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss] * 4])
print(json.dumps(rows))
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
if sys.argv[4] == "whole":
    import opalite.run.model.segment_runs, opalite.plan.planner
    say("onnx, importer, passes, kernels")
session = opalite.InferenceSession(path, device="cpu", precision="fp32")
say("session: the file")
session.run(None, x)
say("weights, arena, kernels, first run")
session.run(None, x)
say("second run")
"""
    + _REST
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
"""
    + _REST
)

Row = list[Any]
"""Part, and KiB: peak, resident, of files, of its own."""


def measure(code: str, path: Path, shapes: dict[str, Any], threads: int, env: dict[str, str], mode: str) -> list[Row]:
    """The rows of one process."""
    command = [sys.executable, "-c", code, str(path), json.dumps(shapes), str(threads), mode]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    rows: list[Row] = json.loads(done.stdout)
    return rows


def measure_all(path: Path, shapes: dict[str, Any], threads: int, rounds: int, cache: Path) -> dict[str, list[Row]]:
    """Rows by kind of process, medians over `rounds`; `cache` is a folder for the model."""
    env = {"OPALITE_CACHE_DIR": str(cache), "POCL_MAX_PTHREAD_COUNT": str(threads)}
    found: dict[str, list[list[Row]]] = {"empty caches": [], "first run": [], "kept plan": [], "onnxruntime": []}
    for _ in range(rounds):
        shutil.rmtree(cache, ignore_errors=True)
        found["empty caches"].append(measure(_OPALITE, path, shapes, threads, env, "whole"))
        shutil.rmtree(cache / "plans", ignore_errors=True)
        found["first run"].append(measure(_OPALITE, path, shapes, threads, env, "whole"))
        if list(cache.glob("plans/*/*/*.opal")):
            found["kept plan"].append(measure(_OPALITE, path, shapes, threads, env, "plan"))
        found["onnxruntime"].append(measure(_ONNXRUNTIME, path, shapes, threads, {}, ""))
    return {name: [_median(parts) for parts in zip(*rows, strict=True)] for name, rows in found.items() if rows}


def _median(rows: Sequence[Row]) -> Row:
    return [rows[0][0], *(statistics.median(row[i] for row in rows) for i in range(1, 5))]


def mb(kib: float) -> float:
    """10^6 bytes."""
    return kib * 1024 / 1e6


def line(name: str, weights: int, found: dict[str, list[Row]]) -> str:
    """A row of the table."""
    figures = {}
    for kind, rows in found.items():
        by_part = {row[0]: row for row in rows}
        figures[kind] = mb(by_part["at rest"][1]), mb(by_part["at rest"][2])
    other, rest = figures["onnxruntime"]
    cells = [name, f"{weights / 1e6:.0f}"]
    for kind in ("empty caches", "first run", "kept plan"):
        if kind not in figures:
            cells += ["", "", ""]
            continue
        peak, steady = figures[kind]
        cells += [f"{peak:.0f}", f"{peak - other:+.0f}", f"{steady:.0f}"]
    cells += [f"{other:.0f}", f"{rest:.0f}", f"{mb(found['empty caches'][-1][1]):.0f}"]
    return f"| {' | '.join(cells)} |"


HEAD = """| model | weights | empty caches: peak | above onnxruntime's | at rest | first run: peak | above | at rest | \
kept plan: peak | above | at rest | onnxruntime: peak | at rest | workers |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def show_parts(name: str, rows: Sequence[Row]) -> None:
    """The memory that each step of a process adds, in MB."""
    print(f"\n| {name} | peak | resident | of files | own | added |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    before = 0.0
    for part, *kib in rows[:-1]:
        peak, resident, files, own = map(mb, kib)
        print(f"| {part} | {peak:.1f} | {resident:.1f} | {files:.1f} | {own:.1f} | {resident - before:+.1f} |")
        before = resident


_SAVE = """
import sys, onnx
from benchmarks.memory import product
from benchmarks.models import build
name, path, external = sys.argv[1:]
model = product(*name.split(":")) if ":" in name else build(name)
onnx.save(model, path, **({"save_as_external_data": True, "location": "weights.bin"} if external else {}))
"""


def model_file(name: str, folder: Path, external: bool = False) -> Path:
    """The file `name`, or the model of that name, built and saved in `folder`; external weights if `external`."""
    path = Path(name)
    if path.suffix == ".onnx":
        return path
    path = folder / f"{name.replace(':', '_')}.onnx"
    # In its own process, so that building does not affect the measurement.
    subprocess.run([sys.executable, "-c", _SAVE, name, str(path), "external" if external else ""], check=True)
    return path


def product(kind: str, size: str) -> onnx.ModelProto:
    """A model of one matmul, or a gemm with a transposed constant, of 16 rows and a matrix of `size`: "KxN"."""
    import numpy as np

    import onnx

    k, n = map(int, size.split("x"))
    matrix = np.random.default_rng(0).standard_normal((n, k) if kind == "gemm" else (k, n), np.float32)
    op, more = {"matmul": ("MatMul", {}), "gemm": ("Gemm", {"transB": 1})}[kind]
    x, y = (onnx.helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, (16, d)) for v, d in (("x", k), ("y", n)))
    node = onnx.helper.make_node(op, ["x", "w"], ["y"], **more)
    graph = onnx.helper.make_graph([node], kind, [x], [y], [onnx.numpy_helper.from_array(matrix, "w")])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


def weight_bytes(path: Path) -> int:
    """Bytes of the model's initializers."""
    import numpy as np

    import onnx

    element = onnx.helper.tensor_dtype_to_np_dtype
    tensors = onnx.load(path).graph.initializer
    return sum(int(np.prod(t.dims)) * element(t.data_type).itemsize for t in tensors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME:DIMS")
    parser.add_argument("--external", action="store_true", help="weights of models built here in a file of their own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", action="store_true", help="show what each step of a process adds")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    everything = {}
    print(f"MB (10^6 bytes), {args.threads} threads, medians of {args.rounds}\n\n{HEAD}", flush=True)
    for name in args.models:
        with tempfile.TemporaryDirectory() as temporary:
            os.environ["OPALITE_CACHE_DIR"] = str(Path(temporary) / "shapes")
            path = model_file(name, Path(temporary), args.external)
            shapes = find_shapes(path, args.shape)
            found = measure_all(path, shapes, args.threads, args.rounds, Path(temporary) / "cache")
            everything[path.stem] = found
            print(line(path.stem, weight_bytes(path), found), flush=True)
    for name, found in everything.items():
        for kind, rows in found.items() if args.parts else ():
            show_parts(f"{name}, {kind}", rows)
    if args.json:
        args.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
