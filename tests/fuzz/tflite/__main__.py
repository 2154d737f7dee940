"""Campaigns of random .tflite graphs, compared with LiteRT's reference kernels: see docs/fuzzing.md.

python -m tests.fuzz.tflite --seconds 600 --seed 1 [--mode null|device] [--count N] [--only GENERATOR,...]
python -m tests.fuzz.tflite --seed 17 --count 1 --save case.tflite
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

HANG_S = 120.0
BATCH = 500  # seeds of one process, so that what it keeps in memory stays bounded


def main() -> int:
    p = argparse.ArgumentParser(
        prog="python -m tests.fuzz.tflite", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument("--mode", choices=["null", "device"], default="null", help="without OpenCL, or on a device")
    p.add_argument("--seed", type=int, default=0, help="the first seed")
    p.add_argument("--count", type=int, help="how many seeds; without it, as many as --seconds allows")
    p.add_argument("--seconds", type=float, help="when to stop; 60 without --count")
    p.add_argument("--nodes", type=int, default=8, help="the most operators of a graph")
    p.add_argument("--only", default="", help="generators by name, with commas")
    p.add_argument("--save", type=Path, help="write the first seed's graph there")
    a = p.parse_args()
    os.environ.setdefault("OPALITE_PLAN_CACHE", "0")
    if a.save is not None:
        from .graph import make_case

        case = make_case(a.seed, a.nodes, a.only)
        a.save.write_bytes(b"" if case is None else case.model)
        return 0
    count = a.count if a.count is not None else 10**9
    seconds = a.seconds if a.seconds is not None else 1e9 if a.count is not None else 60.0
    started = time.time()
    found = run(a.seed, count, started + seconds, a.mode, a.nodes, a.only)
    kinds = Counter(r["kind"] for r in found)
    for r in found:
        if r["kind"] not in INNOCENT:
            print(f"seed {r['seed']}: {r['kind']}: {' '.join(r['text'].split())[:600]}")
    told = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    faults = sum(n for kind, n in kinds.items() if kind not in INNOCENT)
    spent = time.time() - started
    print(f"{len(found)} graphs in {spent:.0f} s ({a.mode} mode, seeds from {a.seed}): {told}; {faults} faults")
    return 1 if faults else 0


INNOCENT = ("ok", "steps", "no graph", "oracle dies")


def run(seed: int, count: int, until: float, mode: str, nodes: int, only: str) -> list[dict[str, Any]]:
    """Records of seeds from `seed` on, each batch in a process of its own, which LiteRT may end."""
    found: list[dict[str, Any]] = []
    end = seed + count
    while seed < end and time.time() < until:
        found += _batch(range(seed, min(end, seed + BATCH)), until, mode, nodes, only)
        if not found or found[-1]["seed"] < seed:
            break
        seed = found[-1]["seed"] + 1
    return found


def _batch(seeds: range, until: float, mode: str, nodes: int, only: str) -> list[dict[str, Any]]:
    """Fork a process for the seeds; its records, and one for the seed at which it died or hung."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        with os.fdopen(writer, "w", buffering=1) as out:
            _work(seeds, until, mode, nodes, only, out)
        os._exit(0)
    os.close(writer)
    records: list[dict[str, Any]] = []
    stage: dict[str, Any] = {}
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGABRT))
    with os.fdopen(reader) as lines:
        signal.alarm(int(HANG_S))
        for line in lines:
            signal.alarm(int(HANG_S))
            record = json.loads(line)
            if "stage" in record:
                stage = record
            else:
                records.append(record)
    signal.alarm(0)
    _, status = os.waitpid(pid, 0)
    if status and stage:
        kind = "oracle dies" if stage["stage"] == "generate" else "dies"
        records.append({"seed": stage["seed"], "kind": kind, "text": f"status {status} at {stage['stage']}"})
    return records


def _work(seeds: range, until: float, mode: str, nodes: int, only: str, out: Any) -> None:
    """The child: seeds one after another, each announced first."""
    from ..judge import Fault
    from .check import check
    from .graph import make_case

    faulthandler.enable()
    for seed in seeds:
        if time.time() > until:
            return
        out.write(json.dumps({"seed": seed, "stage": "generate"}) + "\n")
        text = ""
        try:
            case = make_case(seed, nodes, only)
            out.write(json.dumps({"seed": seed, "stage": "check"}) + "\n")
            kind = "no graph" if case is None else check(case, mode, seed)
        except Fault as e:
            kind, text = e.kind, e.text
        except Exception:  # whatever is wrong here
            kind, text = "exception", traceback.format_exc()[-1500:]
        out.write(json.dumps({"seed": seed, "kind": kind, "text": text}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
