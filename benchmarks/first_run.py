"""Times first results of unseen models in new processes with initially empty caches, against onnxruntime.


    python -m benchmarks.first_run --models ../shared/models
    python -m benchmarks.first_run --models FOLDER --pairs mobilenetv2_fp32:squeezenet10_fp32 --json first.json
    python -m benchmarks.first_run --models FOLDER --tight mobilenetv2_fp32 yunet_dynamic mnist_cntk
    python -m benchmarks.first_run --models FOLDER --scripts mobilenetv2_fp32

Each pair is two models on one machine: the first starts with an empty cache folder, the second with what the first
one's process left. That process ends with its first result, or stays until its session has settled. Seconds count from
process start to first result; `steady` is the median run after settling. FOLDER holds NAME.onnx with NAME.npz ("in:..."
arrays). Engines alternate in each round.

With `--tight`, Opalite runs each model without pause for `--seconds` with an empty cache folder. Output: when each tier
and strategy was first used, and after how many seconds the median of each quarter second stays within a tenth of that
of the last two seconds.

With `--scripts`, `--processes` of each model run in sequence with an initially empty cache folder, alternating with
processes of onnxruntime. Each ends with its first result. Output: seconds to the result, to the end of the process,
processor time, the ratio of the ends, tier.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

PAIRS = ("mobilenetv2_fp32:squeezenet10_fp32", "resnet20_cifar:yunet_dynamic", "ultraface_rfb320:mnist_cntk")
SETTLE_S = 60.0
WINDOW_S = 0.25
_FEEDS = """
import json, sys, time
import numpy as np
path, started, stays = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "stays"
with np.load(path.removesuffix(".onnx") + ".npz") as z:
    feeds = {k[3:]: z[k] for k in z.files if k.startswith("in:")}
"""
_END = """
found = {"first": time.time() - started}
if stays:
    if hasattr(session, "settle"):
        session.settle(SETTLE)
    found["settled"] = time.time() - started
    times = []
    for _ in range(20):
        a = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - a)
    found["steady"] = sorted(times)[len(times) // 2]
print(json.dumps(found))
""".replace("SETTLE", str(SETTLE_S))
_OPALITE = f"""{_FEEDS}
import opalite
session = opalite.InferenceSession(path, device="cpu", precision="fp32")
session.run(None, feeds)
{_END}"""
_TIGHT = f"""{_FEEDS}
import opalite
seconds = float(sys.argv[4])
session = opalite.InferenceSession(path, device="cpu", precision="fp32")
ended, took, stages = [], [], []
while not ended or ended[-1] < seconds:
    begun = time.time()
    session.run(None, feeds)
    now = time.time()
    ended.append(now - started)
    took.append(now - begun)
    stage = session.last_timing.tier + ", " + session.last_timing.strategy
    if not stages or stages[-1][1] != stage:
        stages.append((ended[-1], stage))
print(json.dumps(dict(ended=ended, took=took, stages=stages)))
"""
_SCRIPT = f"""{_FEEDS}
import opalite
session = opalite.InferenceSession(path, device="cpu", precision="fp32")
session.run(None, feeds)
print(json.dumps(dict(first=time.time() - started, tier=session.last_timing.tier)))
"""
_ONNXRUNTIME = f"""{_FEEDS}
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = THREADS
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
session.run(None, feeds)
{_END}"""


@dataclass(frozen=True)
class Result:
    """Seconds to the first result of `model` in one process.

    caches: their initial state. settled, steady: if the process stayed.
    """

    engine: str
    model: str
    caches: str
    first: float
    settled: float = 0.0
    steady: float = 0.0


def measure(code: str, model: Path, stays: bool, cache: Path | None, *more: str) -> dict[str, Any]:
    """The record that a process running `code` prints."""
    env = os.environ | ({} if cache is None else {"OPALITE_CACHE_DIR": str(cache)})
    command = [sys.executable, "-c", code, str(model), str(time.time()), "stays" if stays else "ends", *more]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{model.name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def settled_after(ended: Sequence[float], took: Sequence[float]) -> tuple[float, float]:
    """(seconds until runs stay within a tenth of the last two seconds' median, that median).

    A single slow quarter second between fast ones is attributed to other programs.
    """
    steady = statistics.median(t for at, t in zip(ended, took, strict=True) if at > ended[-1] - 2)
    windows: dict[int, list[float]] = {}
    for at, t in zip(ended, took, strict=True):
        windows.setdefault(int(at / WINDOW_S), []).append(t)
    windows.pop(max(windows))  # is not over
    slow = {number for number, times in windows.items() if statistics.median(times) > 1.1 * steady}
    slow = {number for number in slow if number - 1 in slow or number - 1 not in windows}
    return WINDOW_S * (max(slow, default=-1) + 1), steady


def measure_tight(models: Sequence[Path], seconds: float, rounds: int) -> str:
    """A line for each model: medians over the rounds, and the stages of the last one."""
    lines = ["| model | steady after, s | range | steady, ms | came after s |", "| --- " * 5 + "|"]
    for model in models:
        found = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
                told = measure(_TIGHT, model, True, Path(cache), str(seconds))
            found.append(settled_after(told["ended"], told["took"]))
        after = sorted(a for a, _ in found)
        shown = [f"{statistics.median(after):.2f}", f"{after[0]:.2f} to {after[-1]:.2f}"]
        shown.append(f"{1e3 * statistics.median(s for _, s in found):.3f}")
        shown.append("; ".join(f"{stage} {at:.1f}" for at, stage in told["stages"]))
        lines.append(f"| {model.stem} | {' | '.join(shown)} |")
    return "\n".join(lines)


def measure_scripts(model: Path, processes: int, rounds: int, threads: int) -> str:
    """A line for each process of a row, alternating with processes of onnxruntime; medians over the rounds."""
    peer = _ONNXRUNTIME.replace("THREADS", str(threads))
    shown = ["process", "first result, s", "ended, s", "processor, s", "onnxruntime: ended, s", "processor, s", "ratio"]
    lines = [f"{model.stem}:", "", f"| {' | '.join([*shown, 'tier'])} |", "| --- " * 8 + "|"]
    times = np.zeros((processes, rounds, 5))
    tiers: list[set[str]] = [set() for _ in range(processes)]
    for turn in range(rounds):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            for number in range(processes):
                begun, used = time.time(), _children_s()
                told = measure(_SCRIPT, model, False, Path(cache))
                own = told["first"], time.time() - begun, _children_s() - used
                begun, used = time.time(), _children_s()
                measure(peer, model, False, None)
                times[number, turn] = *own, time.time() - begun, _children_s() - used
                tiers[number].add(told["tier"])
    medians = np.median(times, axis=1)
    ratios = np.median(times[:, :, 1] / times[:, :, 3], axis=1)
    for number, row in enumerate(medians):
        figures = " | ".join(f"{s:.2f}" for s in (*row, ratios[number]))
        lines.append(f"| {number + 1} | {figures} | {', '.join(sorted(tiers[number]))} |")
    return "\n".join([*lines, f"| all | {' | '.join(f'{s:.2f}' for s in medians.sum(0))} | | |", ""])


def _children_s() -> float:
    """Processor seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_pair(first: Path, second: Path, threads: int, folder: Path) -> Iterator[Result]:
    """One round: both models by both engines."""
    for stays in (False, True):
        cache = folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        yield Result("opalite", first.stem, "empty", **measure(_OPALITE, first, stays, cache))
        left = f"left by {first.stem}, which {'stayed' if stays else 'ended'}"
        yield Result("opalite", second.stem, left, **measure(_OPALITE, second, False, cache))
        yield Result("opalite", second.stem, "its own", **measure(_OPALITE, second, False, cache))
    for model in (first, second):
        code = _ONNXRUNTIME.replace("THREADS", str(threads))
        yield Result("onnxruntime", model.stem, "none", **measure(code, model, True, None))


def table(results: Sequence[Result]) -> str:
    """A line per engine, model and cache state: median and range of the first result, steady median."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for r in results:
        groups.setdefault((r.engine, r.model, r.caches), []).append(r)
    lines = ["| engine | model | caches | first result, s | range | settled, s | steady, ms |", "| --- " * 7 + "|"]
    for (engine, model, caches), rows in groups.items():
        firsts = sorted(r.first for r in rows)
        settled, steady = ([getattr(r, name) for r in rows if getattr(r, name)] for name in ("settled", "steady"))
        shown = [f"{statistics.median(firsts):.2f}", f"{firsts[0]:.2f} to {firsts[-1]:.2f}"]
        shown.append(f"{statistics.median(settled):.1f}" if settled and engine == "opalite" else "")
        shown.append(f"{1e3 * statistics.median(steady):.2f}" if steady else "")
        lines.append(f"| {engine} | {model} | {caches} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="folder of NAME.onnx and NAME.npz")
    parser.add_argument("--pairs", nargs="+", default=PAIRS, metavar="FIRST:SECOND")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tight", nargs="+", metavar="MODEL", help="models to run without a pause, in place of pairs")
    parser.add_argument("--scripts", nargs="+", metavar="MODEL", help="models of short processes, in place of pairs")
    parser.add_argument("--processes", type=int, default=10, help="short processes of each model, one after the other")
    parser.add_argument("--seconds", type=float, default=15.0, help="that each of these runs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ["POCL_MAX_PTHREAD_COUNT"] = str(args.threads)
    if args.tight:
        print(measure_tight([args.models / f"{name}.onnx" for name in args.tight], args.seconds, args.repeats))
        return
    if args.scripts:
        for name in args.scripts:
            print(measure_scripts(args.models / f"{name}.onnx", args.processes, args.repeats, args.threads))
        return
    results: list[Result] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a process that ends may still write there
        for _ in range(args.repeats):
            for pair in args.pairs:
                first, second = (args.models / f"{name}.onnx" for name in pair.split(":"))
                results += measure_pair(first, second, args.threads, Path(folder))
    print(f"{platform.processor() or platform.machine()}, {args.threads} threads, {args.repeats} rounds\n")
    print(table(results))
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
