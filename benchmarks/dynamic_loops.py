"""Times loops with data-dependent iteration counts: small models, each count twice, against onnxruntime.


    python -m benchmarks.dynamic_loops                      # all models, 24 counts, warm caches
    python -m benchmarks.dynamic_loops rows until --rounds 3

Models are built in code. `rows`: a recurrent layer as a Loop over the rows of an input that collects its states. `gru`:
the same with GRU gates. `sums`: a Loop with its count as input. `until`: a Loop that ends by its state. `scan`: a Scan
over rows. `first` is the longest first run of a count, `second` the median of second runs, `steady` that of many runs
of 20 and 64 iterations after all builds, in microseconds per iteration. `plans` and `built` are from `session.stats()`.
Each engine has its own process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .new_sizes import open_engine

COUNTS = (20, 5, 64, 33, 8, 48, 12, 2, 27, 61, 17, 40, 3, 55, 24, 10, 30, 6, 45, 14, 37, 58, 22, 51)
WIDTH = 64
_HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'

_ROWS = """
g (float[T, 64] x, float[1, 64] h0) => (float[1, 64] h, float[T, 1, 64] ys)
<float[64, 64] w, float[64, 64] u, float[64] b, int64[1] zero = {0}, bool yes = {1}> {
    s = Shape(x)
    t = Gather(s, zero)
    trips = Squeeze(t)
    h, ys = Loop (trips, yes, h0) <body = step (int64 i, bool go, float[1, 64] hi) => (bool stay, float[1, 64] ho,
                                                                                        float[1, 64] y) {
        axes = Constant <value = int64[1] {0}> ()
        i1 = Unsqueeze(i, axes)
        row = Gather(x, i1)
        xw = MatMul(row, w)
        hu = MatMul(hi, u)
        a = Add(xw, hu)
        c = Add(a, b)
        ho = Tanh(c)
        y = Identity(ho)
        stay = Identity(go)
    }>
}
"""

_GRU = """
g (float[T, 64] x, float[1, 64] h0) => (float[1, 64] h, float[T, 1, 64] ys)
<float[64, 192] w, float[64, 128] u, float[64, 64] v, float[192] b, int64[1] zero = {0}, bool yes = {1},
 int64[3] thirds = {64, 64, 64}> {
    s = Shape(x)
    t = Gather(s, zero)
    trips = Squeeze(t)
    xw = MatMul(x, w)
    xb = Add(xw, b)
    h, ys = Loop (trips, yes, h0) <body = step (int64 i, bool go, float[1, 64] hi) => (bool stay, float[1, 64] ho,
                                                                                        float[1, 64] y) {
        axes = Constant <value = int64[1] {0}> ()
        one = Constant <value = float {1.0}> ()
        i1 = Unsqueeze(i, axes)
        row = Gather(xb, i1)
        xz, xr, xn = Split <axis = 1> (row, thirds)
        hu = MatMul(hi, u)
        hz, hr = Split <axis = 1> (hu)
        z0 = Add(xz, hz)
        z = Sigmoid(z0)
        r0 = Add(xr, hr)
        r = Sigmoid(r0)
        rh = Mul(r, hi)
        hn = MatMul(rh, v)
        n0 = Add(xn, hn)
        n = Tanh(n0)
        keep = Mul(z, hi)
        rest = Sub(one, z)
        new = Mul(rest, n)
        ho = Add(keep, new)
        y = Identity(ho)
        stay = Identity(go)
    }>
}
"""

_SUMS = """
g (float[8, 64] x, int64 m) => (float[8, 64] s, float[T, 8, 64] ys) <bool yes = {1}, float half = {0.5}> {
    s, ys = Loop (m, yes, x) <body = step (int64 i, bool go, float[8, 64] si) => (bool stay, float[8, 64] so,
                                                                                  float[8, 64] y) {
        f = Cast <to = 1> (i)
        a = Mul(si, half)
        so = Add(a, f)
        y = Tanh(so)
        stay = Identity(go)
    }>
}
"""

_UNTIL = """
g (float[1, 64] x, float most) => (float[1, 64] s, float n)
<bool yes = {1}, float zero = {0}, float one = {1.0}, float most_s = {0.9}> {
    s, n = Loop ("", yes, x, zero) <body = step (int64 i, bool go, float[1, 64] si, float ni) => (bool stay,
                                                                                  float[1, 64] so, float no) {
        a = Mul(si, most_s)
        so = Tanh(a)
        no = Add(ni, one)
        stay = Less(no, most)
    }>
}
"""

_SCAN = """
g (float[T, 1, 64] x, float[1, 64] h0) => (float[1, 64] h, float[T, 1, 64] ys)
<float[64, 64] w, float[64, 64] u, float[64] b> {
    h, ys = Scan <num_scan_inputs = 1, body = step (float[1, 64] hi, float[1, 64] row) => (float[1, 64] ho,
                                                                                          float[1, 64] y) {
        xw = MatMul(row, w)
        hu = MatMul(hi, u)
        a = Add(xw, hu)
        c = Add(a, b)
        ho = Tanh(c)
        y = Identity(ho)
    }> (h0, x)
}
"""

MODELS = {"rows": _ROWS, "gru": _GRU, "sums": _SUMS, "until": _UNTIL, "scan": _SCAN}


def make_model(name: str, path: Path) -> None:
    """Write model `name`, with weights of its own."""
    import onnx
    from onnx import numpy_helper, parser

    model = parser.parse_model(_HEAD + MODELS[name])
    rng = np.random.default_rng(0)
    for info in model.graph.value_info:  # what is declared without contents
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        array = (rng.standard_normal(dims) / dims[0] ** 0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del model.graph.value_info[:]
    onnx.save(model, path)


def feeds_of(name: str, trips: int) -> dict[str, Any]:
    """Inputs for `trips` iterations."""
    rng = np.random.default_rng(trips)

    def some(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    if name in ("rows", "gru"):
        return {"x": some(trips, WIDTH), "h0": some(1, WIDTH)}
    if name == "scan":
        return {"x": some(trips, 1, WIDTH), "h0": some(1, WIDTH)}
    if name == "sums":
        return {"x": some(8, WIDTH), "m": np.asarray(trips, np.int64)}
    return {"x": some(1, WIDTH), "most": np.asarray(trips, np.float32)}


def serve(engine: str, name: str, path: str, threads: int) -> dict[str, Any]:
    """The measurements of one process."""
    clock = time.perf_counter
    session = open_engine(engine, path, threads)
    firsts, seconds = [], []
    began = clock()
    results = []
    for trips in COUNTS:
        feeds = feeds_of(name, trips)
        for times in (firsts, seconds):
            started = clock()
            outputs = session.run(None, feeds)
            times.append(clock() - started)
        results.append([float(np.abs(o).sum()) for o in outputs])
    found: dict[str, Any] = {"total_s": clock() - began, "results": results}
    found["first_ms"] = 1e3 * max(firsts[1:])
    found["new_ms"] = 1e3 * statistics.median([a - b for a, b in zip(firsts, seconds, strict=True)][1:])
    found["second_ms"] = 1e3 * statistics.median(seconds)
    if engine != "onnxruntime":
        session.settle()
        for _ in range(30):
            session.run(None, feeds_of(name, 20))
        session.settle()
        stats = session.stats()
        found["plans"], found["built"] = stats.plans_made, stats.programs_built
    for trips in (20, 64):
        feeds, times = feeds_of(name, trips), []
        end = clock() + 0.5
        while clock() < end:
            started = clock()
            session.run(None, feeds)
            times.append(clock() - started)
        found[f"steady_{trips}"] = 1e6 * statistics.median(times) / trips
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        print(json.dumps(serve(*options.serve, options.threads)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            path = str(Path(folder, f"{name}.onnx"))
            make_model(name, Path(path))
            results = {}
            for round_ in range(options.rounds + 1):  # the first fills the caches
                engines = ["opalite", "onnxruntime"]
                random.shuffle(engines)
                for engine in engines:
                    command = [sys.executable, "-m", "benchmarks.dynamic_loops", "--threads", str(options.threads)]
                    env = {**os.environ, "OPALITE_CACHE_DIR": str(Path(folder, f"cache-{name}"))}
                    command += ["--serve", engine, name, path]
                    made = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
                    if made.returncode:
                        raise SystemExit(made.stderr)
                    found = json.loads(made.stdout.splitlines()[-1])
                    results[engine] = found["results"]
                    kind = "empty" if not round_ else "warm"
                    figures = " ".join(
                        f"{k} {found[k]:.2f}"
                        for k in ("total_s", "first_ms", "new_ms", "second_ms", "steady_20", "steady_64")
                    )
                    counts = " ".join(f"{k} {found[k]}" for k in ("plans", "built") if k in found)
                    print(f"{name:6} {engine:12} {kind:6} {figures} {counts}")
            np.testing.assert_allclose(
                np.array(results["opalite"]), np.array(results["onnxruntime"]), rtol=1e-3, err_msg=name
            )


if __name__ == "__main__":
    main()
