"""How long a thread that serves a known size waits while another brings new sizes, beside onnxruntime.

    python -m benchmarks.side_by_side path/to/yunet_dynamic.onnx
    python -m benchmarks.side_by_side model.onnx --known 1x3x160x160 --new 1x3x320x256,1x3x96x128 --cache empty

Each engine has a process of its own, limited to the same number of cores. There one thread runs the known size, first
alone ("quiet"), then while another thread runs each of the new sizes once ("beside"). Quiet times are measured again
after that, and the lower of the two medians counts, for other programs use the machine too. `--cache empty` begins with
an empty cache folder, so that programs are compiled meanwhile; `--cache warm` runs all sizes in an earlier process.
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
    engine: str, model: str, known: list[int], new: list[list[int]], threads: int, seconds: float, gap_s: float
) -> dict[str, Any]:
    """Figures of one engine, in this process."""
    session = open_engine(engine, model, threads)
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
    quiet = serve_for(seconds)
    took: list[float] = []

    def bring() -> None:
        for size in new:
            other = {arg.name: random.random(size, dtype=np.float32)}
            begun = time.perf_counter()
            session.run(None, other)
            took.append(time.perf_counter() - begun)

    other = threading.Thread(target=bring)
    other.start()
    beside = serve(lambda: not other.is_alive())
    behind = []
    if hasattr(session, "settle"):  # what is built behind, and what that takes of the serving thread's time
        waiter = threading.Thread(target=session.settle, args=(120,))
        waiter.start()
        behind = serve(lambda: not waiter.is_alive())
    again = serve_for(seconds)
    calm = min(quiet, again, key=lambda times: percentile(times, 50))
    return {
        "engine": engine,
        "first_s": first_s,
        "quiet": summary(calm),
        "beside": summary(beside),
        "behind": summary(behind),
        "new_ms": [round(1e3 * t, 1) for t in took],
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
    parser.add_argument("--cache", choices=("empty", "warm", "given"), default="empty")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    new = [parse_size(s) for s in args.new.split(",")] if args.new else [[*args.known[:2], h, w] for h, w in SIZES]
    if args.inside:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
        found = measure(args.inside, args.model, args.known, new, args.threads, args.seconds, 1e-3 * args.gap_ms)
        print(json.dumps(found))
        return 0
    results = []
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ) if args.cache == "given" else {**os.environ, "OPALITE_CACHE_DIR": folder}
        for engine in args.engines.split(","):
            for _ in range(1 + (args.cache == "warm" and engine == "opalite")):
                command = [sys.executable, "-m", "benchmarks.side_by_side", *(argv or sys.argv[1:]), "--inside", engine]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            results.append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{'engine':<12} {'stretch':<7} {'runs':>6} {'p50':>8} {'p90':>8} {'p99':>8} {'max':>8}  p99/p50 quiet")
    for r in results:
        for name in ("quiet", "beside", "behind"):
            f = r[name]
            if f["runs"]:
                times = " ".join(f"{f[k]:8.2f}" for k in ("p50", "p90", "p99", "max"))
                print(f"{r['engine']:<12} {name:<7} {f['runs']:>6} {times}  {f['p99'] / r['quiet']['p50']:.1f}")
        print(f"{'':<12} new sizes took {', '.join(f'{t:.0f}' for t in r['new_ms'])} ms; first {r['first_s']:.2f} s")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
