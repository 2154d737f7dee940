"""Times each public call with known, new and growing sizes, and shows its strategy.

    python -m benchmarks.public_calls [--device cpu] [--samples 200] [--scripts 3] [--json FILE]

A small classifier with open batch and picture sizes, and a decoder whose caches grow by one position, are built in
code. A row is a public call, a kind of size and where values are: `array` in host memory, `bound` on the device.

    known     one size, run after the session has settled
    new       a size that the session has not seen, a plan for all sizes being there
    growing   caches that are one position longer in each run

`strategy` is that of the last run (execute/run_trace.py), `looks` whether the run looked at the model instead of
taking a cached route. After that short processes run the classifier once each, one after the other, from an empty
cache folder: seconds of a process, and the tier of its programs. Medians.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import opalite
from benchmarks.new_sizes import make_decoder
from onnx import TensorProto, helper, numpy_helper

KNOWN = (2, 3, 32, 32)
SCRIPT = """
import sys, numpy as np, opalite
session = opalite.InferenceSession(sys.argv[1], device=sys.argv[2] or None, precision="fp32")
session.run(None, {"x": np.ones((2, 3, 32, 32), np.float32)})
print(session.last_trace.tier)
"""
Row = dict[str, Any]


def make_classifier(path: Path) -> None:
    """Three convolutions, a mean and a product: x [N, 3, H, W] to y [N, 10]."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i, (into, out) in enumerate(((3, 16), (16, 16), (16, 32))):
        weights.append(numpy_helper.from_array(rng.standard_normal((out, into, 3, 3)).astype(np.float32) / 9, f"w{i}"))
        nodes.append(helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        value = f"r{i}"
    weights.append(numpy_helper.from_array(rng.standard_normal((32, 10)).astype(np.float32) / 9, "head"))
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "head"], ["y"]))
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])]
    graph = helper.make_graph(nodes, "classifier", ports, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def settle(session: opalite.InferenceSession, run: Callable[[], Any]) -> None:
    """Run until nothing is built in the background any more."""
    for _ in range(3):
        for _ in range(25):
            run()
        session.settle()


def row(
    session: opalite.InferenceSession, call: str, size: str, place: str, run: Callable[[], Any], samples: int
) -> Row:
    """Median milliseconds of `run`, and what the last run of the session says of itself."""
    times = []
    for _ in range(samples):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    trace = session.last_trace
    found = {"ms": 1e3 * statistics.median(times), "strategy": trace.strategy, "looks": trace.import_s > 0}
    return {"call": call, "size": size, "place": place, **found}


def bind(session: opalite.InferenceSession, feeds: dict[str, Any], device: Any) -> opalite.IOBinding:
    """A binding of arrays that have been moved to the device, whose outputs stay there."""
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, opalite.OrtValue.ortvalue_from_numpy(array, device))
    for port in session.get_outputs():
        binding.bind_output(port.name, "opencl")
    return binding


def classifier_rows(path: Path, device: str | None, samples: int) -> Iterator[Row]:
    """Rows of calls on a model whose sizes do not follow from the run before."""
    session = opalite.InferenceSession(path, device=device, precision="fp32")
    feeds = {"x": np.ones(KNOWN, np.float32)}

    def run() -> None:
        session.run(None, feeds)

    settle(session, run)
    yield row(session, "run", "known", "array", run, samples)
    yield row(session, "replay", "known", "array", session.replay, samples)
    yield row(session, "run_async", "known", "array", lambda: run_async(session, feeds), samples)
    with opalite.InferQueue(session, jobs=4) as queue:

        def queued() -> None:
            for _ in range(4):
                queue.start_async(feeds)
            queue.wait_all()

        made = row(session, "InferQueue of 4", "known", "array", queued, max(1, samples // 4))
        yield {**made, "ms": made["ms"] / 4}
    binding = bind(session, feeds, session.device)

    def run_bound() -> None:
        session.run_with_iobinding(binding)

    settle(session, run_bound)
    yield row(session, "io_binding", "known", "bound", run_bound, samples)
    yield row(session, "replay", "known", "bound", session.replay, samples)
    sizes = iter([(n, 3, h, w) for n in (1, 3) for h in range(33, 65) for w in range(33, 65)])
    new = min(samples, 40)
    yield row(session, "run", "new", "array", lambda: session.run(None, {"x": np.ones(next(sizes), np.float32)}), new)

    def bound_new() -> None:
        session.run_with_iobinding(bind(session, {"x": np.ones(next(sizes), np.float32)}, session.device))

    yield row(session, "io_binding", "new", "bound", bound_new, new)


def run_async(session: opalite.InferenceSession, feeds: dict[str, Any]) -> None:
    """One asynchronous run, waited for."""
    done = threading.Event()
    session.run_async(None, feeds, lambda outputs, data, fault: done.set(), None)
    done.wait()


def decoder_row(path: Path, device: str | None, call: str, samples: int) -> Row:
    """The row of a call whose caches grow by a position a run."""
    session = opalite.InferenceSession(path, device=device, precision="fp32")
    first, *others = session.get_inputs()
    fixed = {first.name: np.ones(first.shape, np.float32)}
    names = [a.name for a in others]
    caches: dict[str, Any] = {a.name: np.ones([d if isinstance(d, int) else 0 for d in a.shape], "f4") for a in others}

    def step() -> None:
        outputs = session.run(None, {**fixed, **caches})
        caches.update(zip(names, outputs[1:], strict=True))

    if call == "run":
        settle(session, step)
        return row(session, call, "growing", "array", step, samples)
    state = session.state(dict(zip(names, [o.name for o in session.get_outputs()[1:]], strict=True)))
    settle(session, lambda: state.run(fixed))
    return row(session, call, "growing", "bound", lambda: state.run(fixed), samples)


def short_scripts(path: Path, device: str | None, count: int) -> Iterator[Row]:
    """Processes that run the classifier once, one after the other, from an empty cache folder."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            started = time.perf_counter()
            child = subprocess.run(
                [sys.executable, "-c", SCRIPT, os.fspath(path), device or ""],
                env={**os.environ, "OPALITE_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            )
            spent = 1e3 * (time.perf_counter() - started)
            yield {"call": f"script {number + 1}", "size": "known", "place": "array", "ms": spent, "looks": True} | {
                "strategy": child.stdout.strip()
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--samples", type=int, default=200, help="runs of each row")
    parser.add_argument("--scripts", type=int, default=3, help="short processes in a row")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    rows: list[Row] = []
    print(f"{'call':16} {'size':8} {'place':6} {'ms':>9}  strategy")
    with tempfile.TemporaryDirectory() as name:
        classifier, decoder = Path(name, "classifier.onnx"), Path(name, "decoder.onnx")
        make_classifier(classifier)
        make_decoder(decoder)
        found = itertools.chain(
            classifier_rows(classifier, args.device, args.samples),
            (decoder_row(decoder, args.device, call, args.samples) for call in ("run", "State.run")),
            short_scripts(classifier, args.device, args.scripts),
        )
        for r in found:
            rows.append(r)
            looks = ", looks at the model" if r["looks"] and "script" not in r["call"] else ""
            print(f"{r['call']:16} {r['size']:8} {r['place']:6} {r['ms']:9.3f}  {r['strategy']}{looks}", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
