"""Times every operator family in first runs, by generic programs alone, against onnxruntime.

    python -m benchmarks.first_runs_by_family
    python -m benchmarks.first_runs_by_family LSTM NonMax --settled --empty

Models of one operator or a few (models/families.py), each in a process with a cache folder of its own that holds the
generic programs. Slices of both engines take turns; a time is the least of the medians of slices, so that other load
of the machine counts little. `built`: programs that the first run waited for. --settled: also the optimized tier.
--empty: also the very first run with an empty cache folder.
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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .caller_builds import SETTLE_S, in_process
from .models.families import rows

SLICE_S, SLICES, MOST = 0.04, 8, 40  # seconds of a slice, slices of an engine, runs of a slice
PAUSE_S = 0.004  # after which onnxruntime's threads no longer spin


def hold_generic() -> None:
    """Keep sessions of this process on the generic tier: nothing is built in the background."""
    from opalite.run.model.background.background_compile import BackgroundCompiler

    BackgroundCompiler.submit = lambda self, *jobs: None  # type: ignore[method-assign]


def timed_slice(run: Callable[[], Any]) -> float:
    """The median seconds of runs that follow one another for a while, the first left out."""
    time.sleep(PAUSE_S)
    run()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < MOST and (len(times) < 2 or time.perf_counter() - begin < SLICE_S):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def measure(name: str, settled: bool, threads: int) -> dict[str, Any]:
    """Seconds of both engines and what the first run waited for."""
    import onnxruntime as ort

    import opalite

    raw, feeds = next(row for row in rows() if row.name == name).make()
    if not settled:
        hold_generic()
    started = time.perf_counter()
    session = opalite.InferenceSession(raw, precision="fp32")
    got = session.run(None, feeds)
    first = time.perf_counter() - started
    stats = session.stats().to_raw()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    peer = ort.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    wanted = peer.run(None, feeds)
    if settled:
        session.settle(SETTLE_S)
        for _ in range(25):
            session.run(None, feeds)
        session.settle(SETTLE_S)
    ours, theirs = [], []
    for _ in range(SLICES):
        theirs.append(timed_slice(lambda: peer.run(None, feeds)))
        ours.append(timed_slice(lambda: session.run(None, feeds)))
    off = max(
        (
            float(np.abs(np.asarray(a, np.float64) - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-9))
            if np.shape(a) == np.shape(b)
            else np.inf
        )
        for a, b in zip(got, wanted, strict=True)
    )
    return {
        "first": first,
        "built": stats["programs_built"],
        "host": stats["fallbacks"],
        "tier": session.stats().to_raw()["tier"],
        "ours": min(ours),
        "theirs": min(theirs),
        "off": off,
    }


def child(name: str, cache: Path, *options: str) -> dict[str, Any]:
    """`measure` in a process of its own."""
    env = os.environ | {"OPALITE_CACHE_DIR": str(cache), "OPALITE_PLAN_CACHE": "0"}
    command = [sys.executable, "-m", "benchmarks.first_runs_by_family", "--one", name, *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(name: str, found: dict[str, dict[str, Any]]) -> str:
    """A row of the table."""
    generic = found["generic"]
    if "error" in generic:
        return f"{name:48} {generic['error']}"
    text = f"{name:48} {generic['ours'] / generic['theirs']:7.2f}"
    if "settled" in found:
        settled = found["settled"]
        text += f" {settled['ours'] / settled['theirs']:7.2f}" if "ours" in settled else "       -"
    text += f" {1e3 * generic['ours']:9.3f} {1e3 * generic['theirs']:8.3f} {generic['built']:3} {generic['first']:6.2f}"
    if "empty" in found:
        empty = found["empty"]
        text += f" {empty['built']:3} {empty['first']:6.2f}" if "first" in empty else "   -      -"
    notes = [", ".join(generic["host"])] * bool(generic["host"]) + [generic["tier"]] * (generic["tier"] != "generic")
    if generic["off"] > 1e-3:
        notes.append(f"off by {generic['off']:.1e}")
    return f"{text}  {'; '.join(notes)}".rstrip()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help="parts of names of rows; all rows by default")
    p.add_argument("--settled", action="store_true", help="also time the optimized tier")
    p.add_argument("--empty", action="store_true", help="also time the first run with an empty cache folder")
    p.add_argument("--threads", type=int, default=2, help="of onnxruntime")
    p.add_argument("--json", help="file for the figures")
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("--is-settled", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        print(json.dumps(measure(a.one, a.is_settled, a.threads)), flush=True)
        os._exit(0)  # nothing waits for what is built behind
    chosen = [row.name for row in rows() if not a.names or any(n.lower() in row.name.lower() for n in a.names)]
    settled, empty = " settled" * a.settled, " empty: built, s" * a.empty
    print(f"{'':48} generic{settled}      ms   peer ms  built  s{empty}")
    results: dict[str, Any] = {}
    options = ["--threads", str(a.threads)]
    with tempfile.TemporaryDirectory() as folder:
        ready, own = Path(folder) / "ready", Path(folder) / "own"
        in_process(ready, "--prepare")
        for name in chosen:
            shutil.rmtree(own, ignore_errors=True)
            shutil.copytree(ready, own)
            found = {"generic": child(name, own, *options)}
            if a.settled:
                found["settled"] = child(name, own, "--is-settled", *options)
            if a.empty:
                shutil.rmtree(own)
                found["empty"] = child(name, own, *options)
            results[name] = found
            print(line(name, found), flush=True)
    ratios = [r["generic"]["ours"] / r["generic"]["theirs"] for r in results.values() if "ours" in r["generic"]]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(
            f"geometric mean {mean:.2f}; above 3: {sum(r > 3 for r in ratios)}; above 5: {sum(r > 5 for r in ratios)}"
        )
    if a.json:
        Path(a.json).write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
