"""Compares the throughput of InferQueue, run_async and threads with a plain loop of runs, and with onnxruntime.

    python -m benchmarks.infer_queue mobilenet_v2 resnet18 path/to/model.onnx [--device cpu] [--rounds 7] [--json FILE]
    python -m benchmarks.infer_queue efficientnet_b0 --device gpu --precision fp16 --devices all --processes

Items per second, arrays in and arrays out, each item another array. The ways alternate within one process, a quarter of
a second each, for several rounds; `x` is the median over the rounds of a way's rate over the loop's. `queue` is `map`
of an InferQueue, `queue callback` its start_async, `threads` a pool of two threads that call `run`.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import onnx
import opalite

from .gpu_ways import inputs_like
from .models import NAMES, build
from .models.feeds import random_feeds

Feeds = list[dict[str, Any]]
Way = Callable[[int], None]
"""Computes a number of items."""
STRETCH_S = 0.25
WARM_S = 1.0


def loop(run: Callable[[dict[str, Any]], Any], feeds: Feeds) -> Way:
    """One run after the other."""

    def way(count: int) -> None:
        for i in range(count):
            run(feeds[i % len(feeds)])

    return way


def by_threads(run: Callable[[dict[str, Any]], Any], feeds: Feeds, pool: ThreadPoolExecutor) -> Way:
    """Two threads, each with half of the items."""

    def way(count: int) -> None:
        half = loop(run, feeds)
        list(pool.map(half, (count // 2, count - count // 2)))

    return way


def by_run_async(session: opalite.InferenceSession, feeds: Feeds) -> Way:
    """run_async with four items in flight."""

    def way(count: int) -> None:
        free = threading.Semaphore(4)
        for i in range(count):
            free.acquire()
            session.run_async(None, feeds[i % len(feeds)], lambda *_: free.release(), None)
        for _ in range(4):
            free.acquire()

    return way


def by_map(queue: opalite.InferQueue, feeds: Feeds) -> Way:
    """Results in order."""

    def way(count: int) -> None:
        for job in queue.map(feeds[i % len(feeds)] for i in range(count)):
            job.result()

    return way


def by_callback(queue: opalite.InferQueue, feeds: Feeds) -> Way:
    """Results to a callback."""
    queue.set_callback(lambda job, _: job.result())

    def way(count: int) -> None:
        for i in range(count):
            queue.start_async(feeds[i % len(feeds)])
        queue.wait_all()

    return way


def warm_up(queue: opalite.InferQueue, way: Way) -> None:
    """Runs until programs are built and the queue has measured how it computes short requests."""
    for _ in range(2):
        way(60)
        queue.settle()
    until = time.perf_counter() + WARM_S
    while time.perf_counter() < until:
        way(60)


def ways_to_run(data: bytes, options: argparse.Namespace, stack: ExitStack) -> tuple[dict[str, Way], Feeds]:
    """Each way, warmed up."""
    settings = {"precision": options.precision}
    session = stack.enter_context(opalite.InferenceSession(data, device=options.device, **settings))
    first = random_feeds(onnx.load_from_string(data), seed=1)
    arrays = {name: inputs_like(x) for name, x in first.items()}
    feeds = [{name: found[i] for name, found in arrays.items()} for i in range(len(next(iter(arrays.values()))))]

    def run(item: dict[str, Any]) -> Any:
        return session.run(None, item)

    ways = {"loop": loop(run, feeds)}
    pool = stack.enter_context(ThreadPoolExecutor(2))
    ways["threads"] = by_threads(run, feeds, pool)
    ways["run_async"] = by_run_async(session, feeds)

    def opened(name: str, model: Any, **given: Any) -> None:
        queue = stack.enter_context(opalite.InferQueue(model, **given))
        warm_up(queue, by_map(queue, feeds))
        if options.callbacks:
            other = stack.enter_context(opalite.InferQueue(model, **given))
            ways[f"{name} callback"] = by_callback(other, feeds)
            warm_up(other, ways[f"{name} callback"])
        ways[name] = by_map(queue, feeds)

    for _ in range(2):
        loop(run, feeds)(30)
        session.settle()
    opened("queue", session)
    if options.devices:
        devices = options.devices if options.devices == "all" else options.devices.split(",")
        opened(f"queue {options.devices}", data, devices=devices, **settings)
    if options.processes:
        devices = options.devices or ([options.device] if options.device else None)
        devices = devices.split(",") if isinstance(devices, str) and devices != "all" else devices
        opened("processes", data, devices=devices, processes=True, **settings)
    if options.onnxruntime:
        import onnxruntime

        peer = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        ways["onnxruntime"] = loop(lambda item: peer.run(None, item), feeds)
        ways["onnxruntime threads"] = by_threads(lambda item: peer.run(None, item), feeds, pool)
    return ways, feeds


def rates(ways: dict[str, Way], rounds: int) -> dict[str, list[float]]:
    """Items per second of each way in each round."""
    counts = {}
    for name, way in ways.items():
        way(8)
        started = time.perf_counter()
        way(8)
        counts[name] = max(8, int(8 * STRETCH_S / (time.perf_counter() - started)))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(rounds):
        names = list(ways)
        for name in names[i % len(names) :] + names[: i % len(names)]:
            started = time.perf_counter()
            ways[name](counts[name])
            found[name].append(counts[name] / (time.perf_counter() - started))
    return found


def model_bytes(name: str) -> bytes:
    """The file's contents, or those of a network built in code."""
    return build(name).SerializeToString() if name in NAMES else Path(name).read_bytes()


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="files, or names of benchmarks.models")
    parser.add_argument("--device")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--devices", help="of a further queue: 'all', or names with commas")
    parser.add_argument("--processes", action="store_true", help="a queue of processes, too")
    parser.add_argument("--callbacks", action="store_true", help="start_async with a callback, too")
    parser.add_argument("--onnxruntime", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in options.models:
        with ExitStack() as stack:
            ways, _ = ways_to_run(model_bytes(model), options, stack)
            found = rates(ways, options.rounds)
        base = found["loop"]
        row: dict[str, Any] = {"model": Path(model).stem}
        for name, per_round in found.items():
            ratio = median(a / b for a, b in zip(per_round, base, strict=True))
            row[name] = {"per_s": median(per_round), "ratio": ratio}
        rows.append(row)
        shown = (f"{n} {v['per_s']:.0f}/s x{v['ratio']:.2f}" for n, v in row.items() if n != "model")
        print(f"{row['model']:24.24}", "  ".join(shown), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
