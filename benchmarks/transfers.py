"""Times transfers of inputs and outputs: runs on arrays, and with both bound to device memory.


    python -m benchmarks.transfers MODEL.onnx [...] [--shape INPUT:1x2x3] [--device cpu] [--samples 300]

The ways alternate; microseconds per run, medians with quartiles:

    queue     session.run, every value copied by a command on the queue
    memory    session.run, values copied by the host if the device works on host memory (the default)
    pinned    session.run with inputs in memory that the device copies itself (OrtValue of 'opencl_pinned')
    overlap   inputs of the next run are uploaded while the device computes, outputs are downloaded
    bound     session.run_with_iobinding, inputs and outputs on the device
    launches  the launches alone (session.replay)

Inputs are noise in the declared shapes; open dimensions are 1 without a `--shape`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import opalite
from opalite.cli.shared_options import parse_shapes


def make_feeds(session: opalite.InferenceSession, given: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Noise for every input."""
    rng = np.random.default_rng(0)
    shapes = session.example_shapes()
    shapes.update((n, s) for n, s in given.items() if n in shapes)
    types = {a.name: a.dtype for a in session.get_inputs()}
    return {n: rng.uniform(0, 1, shape).astype(types[n].np) for n, shape in shapes.items() if types[n] is not None}


def ways_to_run(path: str, device: str | None, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Callable[[], Any]]:
    """Each way as a function without arguments, warmed up."""
    ways: dict[str, Callable[[], Any]] = {}
    for name in ("queue", "memory"):
        session = opalite.InferenceSession(path, device=device, precision="fp32")
        rt = session.runtime
        shares = rt.shares_memory
        if name == "memory" and not shares:
            continue
        rt.__dict__["shares_memory"] = name == "memory"
        feeds = make_feeds(session, shapes)
        session.run(None, feeds)
        rt.__dict__["shares_memory"] = shares
        ways[name] = lambda session=session, feeds=feeds: session.run(None, feeds)
    pinned = {n: opalite.OrtValue.ortvalue_from_numpy(a, "opencl_pinned", device or 0) for n, a in feeds.items()}
    ways["pinned"] = lambda: session.run(None, pinned)
    ways["overlap"] = overlapped(opalite.InferenceSession(path, device=device, precision="fp32"), pinned)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "opencl")
    other = opalite.InferenceSession(path, device=device, precision="fp32")
    other.run(None, feeds)
    ways["bound"] = lambda: session.run_with_iobinding(binding)
    ways["launches"] = other.replay
    return ways


def overlapped(session: opalite.InferenceSession, pinned: Mapping[str, opalite.OrtValue]) -> Callable[[], Any]:
    """A run on inputs already on the device, while a thread uploads the next ones."""
    sides = []
    for _ in range(2):
        values = {n: opalite.OrtValue.ortvalue_from_numpy(v.numpy(), session.device) for n, v in pinned.items()}
        binding = session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name, "opencl")
        sides.append((values, binding))
    pool = ThreadPoolExecutor(1)

    def bring(values: Mapping[str, opalite.OrtValue]) -> None:
        for name, value in values.items():
            value.update_inplace(pinned[name].numpy())

    def run() -> None:
        sides.reverse()
        coming = pool.submit(bring, sides[1][0])
        session.run_with_iobinding(sides[0][1])
        sides[0][1].copy_outputs_to_cpu()
        coming.result()

    run()
    run()
    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT:1x2x3")
    parser.add_argument("--device", default=None)
    parser.add_argument("--samples", type=int, default=300)
    options = parser.parse_args()
    order = np.random.default_rng(1)
    for path in options.models:
        ways = ways_to_run(path, options.device, parse_shapes(options.shape))
        found: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(options.samples + 10):
            for name in order.permutation(list(ways)):
                started = time.perf_counter()
                ways[name]()
                if i >= 10:
                    found[name].append(1e6 * (time.perf_counter() - started))
        cells = []
        for name, times in found.items():
            low, middle, high = np.percentile(times, (25, 50, 75))
            cells.append(f"{name} {middle:.0f} [{low:.0f} {high:.0f}]")
        print(f"{Path(path).stem:24}" + "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
