"""Times a known size on one thread while another thread brings new sizes, against onnxruntime.


    python -m benchmarks.latency_during_new_sizes path/to/yunet_dynamic.onnx
    python -m benchmarks.latency_during_new_sizes model.onnx --known 1x3x160x160 --new 1x3x320x256,1x3x96x128

Each engine has its own process with the same number of cores. One thread runs the known size:

    alone       before and after all others: the lower of the two medians counts
    concurrent  while another thread runs each of the new sizes once
    background  while builds for those sizes continue in the background, if the engine has such builds
    shared      while the other thread runs the same sizes again: the cost of sharing the device alone

`shared` is the baseline of `concurrent`. The last line is the duration of the other thread's runs. `--every-ms` sets
that thread's period; by default it runs without pause. `--cache empty` starts with an empty cache folder, so that
programs are compiled in the meantime; `--cache warm` runs all sizes in an earlier process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZES = [(96 + 32 * (i * 5 % 11), 96 + 32 * (i * 7 % 13)) for i in range(12)]


def percentile(times: list[float], share: float) -> float:
    """Milliseconds that `share` percent of the runs do not exceed."""
    return 1e3 * float(np.percentile(times, share)) if times else float("nan")


def summary(times: list[float]) -> dict[str, float]:
    """Figures of some runs, in milliseconds."""
    found = {f"p{p}": percentile(times, p) for p in (50, 90, 99)}
    return {**found, "max": 1e3 * max(times, default=float("nan")), "runs": len(times)}


def open_engine(name: str, model: str, threads: int) -> Any:
    """A session of engine `name`; all have onnxruntime's calls."""
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    import opalite

    return opalite.InferenceSession(model, device="cpu", precision="fp32")


def measure(
    engine: str, model: str, known: list[int], new: list[list[int]], args: argparse.Namespace
) -> dict[str, Any]:
    """Figures of one engine, in this process."""
    session = open_engine(engine, model, args.threads)
    seconds, gap_s, every_s = args.seconds, 1e-3 * args.gap_ms, 1e-3 * args.every_ms
    (arg,) = session.get_inputs()
    random = np.random.default_rng(0)
    feeds = {arg.name: random.random(known, dtype=np.float32)}
    started = time.perf_counter()
    session.run(None, feeds)
    first_s = time.perf_counter() - started

    def serve(until: Any) -> list[float]:
        times = []
        while not until():
            begun = time.perf_counter()
            session.run(None, feeds)
            times.append(time.perf_counter() - begun)
            if gap_s:
                time.sleep(gap_s)
        return times

    def serve_for(wanted_s: float) -> list[float]:
        end = time.perf_counter() + wanted_s
        return serve(lambda: time.perf_counter() > end)

    serve_for(seconds)
    if hasattr(session, "settle"):
        session.settle(60)
    serve_for(0.5)
    if hasattr(session, "settle"):
        session.settle(60)  # the megakernel is built after many runs
    quiet = serve_for(seconds)
    other_feeds = [{arg.name: random.random(size, dtype=np.float32)} for size in new]

    def bring(times: int) -> list[float]:
        """Runs every new size `times` times; seconds of each run."""
        took = []
        for feeds in other_feeds * times:
            begun = time.perf_counter()
            session.run(None, feeds)
            took.append(time.perf_counter() - begun)
            if took[-1] < every_s:
                time.sleep(every_s - took[-1])
        return took

    def serve_concurrently(times: int) -> tuple[list[float], list[float]]:
        took: list[float] = []
        other = threading.Thread(target=lambda: took.extend(bring(times)))
        other.start()
        return serve(lambda: not other.is_alive()), took

    concurrent, took = serve_concurrently(1)
    background = []
    if hasattr(session, "settle"):  # background builds, and their effect on the serving thread
        waiter = threading.Thread(target=session.settle, args=(120,))
        waiter.start()
        background = serve(lambda: not waiter.is_alive())
    for _ in range(2):
        alone = bring(1)
    rounds = max(1, int(seconds / sum(max(t, every_s) for t in alone)))
    shared, _ = serve_concurrently(rounds)
    again = serve_for(seconds)
    calm = min(quiet, again, key=lambda times: percentile(times, 50))
    return {
        "engine": engine,
        "first_s": first_s,
        "alone": summary(calm),
        "concurrent": summary(concurrent),
        "background": summary(background),
        "shared": summary(shared),
        "new_ms": [round(1e3 * t, 1) for t in took],
        "alone_ms": [round(1e3 * t, 2) for t in alone],
    }


def parse_size(text: str) -> list[int]:
    """1x3x160x160 as numbers."""
    return [int(n) for n in text.split("x")]


def main(argv: list[str] | None = None) -> int:
    """Print a table, or with --json write the figures, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--known", default="1x3x160x160", type=parse_size)
    parser.add_argument("--new", help="sizes separated by commas; default: 12 picture sizes of 96 to 480")
    parser.add_argument("--engines", default="opalite,onnxruntime")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2.0, help="of each quiet stretch")
    parser.add_argument("--gap-ms", type=float, default=0.0, help="between two runs of the serving thread")
    parser.add_argument("--every-ms", type=float, default=0.0, help="from one run of the other thread to the next")
    parser.add_argument("--cache", choices=("empty", "warm", "given"), default="empty")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    new = [parse_size(s) for s in args.new.split(",")] if args.new else [[*args.known[:2], h, w] for h, w in SIZES]
    if args.inside:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
        found = measure(args.inside, args.model, args.known, new, args)
        print(json.dumps(found))
        return 0
    results = []
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ) if args.cache == "given" else {**os.environ, "OPALITE_CACHE_DIR": folder}
        for engine in args.engines.split(","):
            for _ in range(1 + (args.cache == "warm" and engine == "opalite")):
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.latency_during_new_sizes",
                    *(argv or sys.argv[1:]),
                    "--inside",
                    engine,
                ]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            results.append(json.loads(done.stdout.splitlines()[-1]))
    print(
        f"{'engine':<12} {'stretch':<7} {'runs':>6} {'p50':>8} {'p90':>8} {'p99':>8} {'max':>8}  p99/p50  p99/p50 quiet"
    )
    for r in results:
        for name in ("alone", "concurrent", "background", "shared"):
            f = r[name]
            if f["runs"]:
                times = " ".join(f"{f[k]:8.2f}" for k in ("p50", "p90", "p99", "max"))
                ratios = f"{f['p99'] / f['p50']:7.1f} {f['p99'] / r['quiet']['p50']:14.1f}"
                print(f"{r['engine']:<12} {name:<7} {f['runs']:>6} {times}  {ratios}")
        print(f"{'':<12} new sizes took {', '.join(f'{t:.0f}' for t in r['new_ms'])} ms; first {r['first_s']:.2f} s")
        print(f"{'':<12} by themselves, known: {', '.join(f'{t:.1f}' for t in r['alone_ms'])} ms")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
