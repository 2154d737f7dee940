"""Times the host's cost of enqueuing one launch: pyopencl alone, ctypes alone, Opalite.


    python -m benchmarks.launch_cost [--device cpu] [--launches 256] [--samples 200] [--json FILE]

Two sets of kernels are enqueued: empty ones, and those of a chain of small softmaxes. The ways alternate; each sample
enqueues all launches and then waits. `enqueue` is the time until the last call returned, `done` until the device
finished, in microseconds per launch, medians with quartiles. The last line is a whole `session.run` of the chain: input
checks, upload, launches, wait, download.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

import opalite
from onnx import TensorProto, helper
from opalite.cl.queue.launch_sequence import LaunchSequence
from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.cl.queue.raw_opencl_calls import enqueue_args, find_enqueue
from opalite.cl.runtime import Runtime, find_runtime

EMPTY = "kernel void empty(global float *x) {}"
Way = Callable[[], None]


def make_chain(length: int) -> bytes:
    """A model of `length` softmaxes over [4, 16], which no pass fuses."""
    nodes = [helper.make_node("Softmax", [f"v{i}"], [f"v{i + 1}"], axis=1) for i in range(length)]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 16]) for n in ("v0", f"v{length}")]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data: bytes = model.SerializeToString()
    return data


def ways_to_enqueue(rt: Runtime, launches: list[PreparedLaunch]) -> dict[str, Way]:
    """Every way to enqueue all of `launches` once."""
    queue = rt.queue
    calls = [(x.kernel, x.grid, x.group) for x in launches]

    def through_pyopencl() -> None:
        enqueue = cl.enqueue_nd_range_kernel
        for kernel, grid, group in calls:
            enqueue(queue, kernel, grid, group)

    ways: dict[str, Way] = {"pyopencl, bare": through_pyopencl}
    raw = find_enqueue()
    if raw is not None:
        arguments = [enqueue_args(queue, *call) for call in calls]

        def through_ctypes() -> None:
            for args in arguments:
                raw(*args)

        ways["ctypes, bare"] = through_ctypes
    os.environ["OPALITE_STRATEGY"] = "queue"
    ways["opalite, queue"] = rt.record(launches, replay=True).run
    os.environ["OPALITE_STRATEGY"] = "replay"
    replayed = rt.record(launches, replay=True)
    del os.environ["OPALITE_STRATEGY"]
    if replayed.replays:
        ways["opalite, replay"] = replayed.run
    return ways


def measure(rt: Runtime, ways: dict[str, Way], count: int, samples: int) -> dict[str, dict[str, list[float]]]:
    """Microseconds a launch of each way: quartiles until enqueued, and until done."""
    clock = time.perf_counter
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    order = np.random.default_rng(0)
    for i in range(samples + 3):
        for name in order.permutation(list(ways)):
            started = clock()
            ways[name]()
            enqueued = clock()
            rt.finish()
            if i >= 3:
                found[name].append((enqueued - started, clock() - started))
    return {
        n: {"enqueue": quartiles(e for e, _ in v), "done": quartiles(d for _, d in v)} for n, v in _each(found, count)
    }


def _each(found: dict[str, list[tuple[float, float]]], count: int) -> Iterable[tuple[str, list[tuple[float, float]]]]:
    for name, pairs in found.items():
        yield name, [(1e6 * e / count, 1e6 * d / count) for e, d in pairs]


def quartiles(values: Iterable[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    return [float(q) for q in np.percentile(list(values), (25, 50, 75))]


def show(title: str, rows: dict[str, dict[str, list[float]]]) -> None:
    """A table with ratios to the first row's enqueueing."""
    print(f"\n{title:24}{'enqueue µs':>24}{'ratio':>8}{'done µs':>26}")
    base = next(iter(rows.values()))["enqueue"][1]
    for name, row in rows.items():
        (a, b, c), (d, e, f) = row["enqueue"], row["done"]
        print(f"{name:24}{b:10.2f} [{a:5.2f} {c:5.2f}]{b / base:8.2f}{e:12.2f} [{d:5.2f} {f:5.2f}]")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None)
    parser.add_argument("--launches", type=int, default=256)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    rt = find_runtime(options.device)
    print(f"{rt.info.name}, {rt.info.version}; {os.cpu_count()} cores; replay: {rt.replay}")
    buffer = rt.allocate(64)
    program = rt.build(EMPTY, "", "empty")
    empty = [rt.prepare(program, "empty", [buffer], (16,), (1,)) for _ in range(options.launches)]
    session = opalite.InferenceSession(make_chain(options.launches), device=rt.info.id, precision="fp32")
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    session.run(None, {"v0": x})
    (recording,) = (p for e in session._run_record.executables for p in e.plain.phases if isinstance(p, LaunchSequence))
    results: dict[str, Any] = {"device": rt.info.name, "version": rt.info.version}
    for title, launches in (("empty kernels", empty), ("a chain of softmaxes", recording.launches)):
        rows = measure(rt, ways_to_enqueue(rt, launches), len(launches), options.samples)
        show(title, rows)
        results[title] = rows
    run = measure(rt, {"run": lambda: session.run(None, {"v0": x}) and None}, len(recording.launches), options.samples)
    show(f"run of {len(recording.launches)} launches", {"session.run": run["run"]})
    results["session.run"] = run["run"]
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
