"""A campaign as several processes side by side, each with seeds and a folder of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

THREADS = "POCL_MAX_PTHREAD_COUNT"


def shares(first: int, count: int, jobs: int) -> list[range]:
    """The seeds of each job, as equal as they can be; none is empty."""
    edges = [first + count * n // jobs for n in range(jobs + 1)]
    return [range(a, b) for a, b in pairwise(edges) if b > a]


def run_jobs(module: str, options: Sequence[str], seeds: Sequence[range], folder: Path, threads: int) -> list[Any]:
    """Run `python -m MODULE` for each of `seeds` in folder/job-N; all records, also joined in folder/results.jsonl.

    options: what all jobs get beside --seed, --count and --out. threads: those of PoCL in each process.
    """
    environment = {THREADS: str(threads), "POCL_AFFINITY": "0", **os.environ}
    running = []
    for number, share in enumerate(seeds):
        place = folder / f"job-{number}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "results.jsonl").unlink(missing_ok=True)
        command = [sys.executable, "-m", module, *options, "--out", str(place)]
        command += ["--seed", str(share.start), "--count", str(len(share))]
        with (place / "log").open("w") as log:
            running.append((place, subprocess.Popen(command, stdout=log, stderr=log, env=environment)))
    try:
        for place, process in running:
            if process.wait() not in (0, 1):
                print(f"{place.name} ended with {process.returncode}: {(place / 'log').read_text()[-1000:]}")
    except KeyboardInterrupt:
        for _, process in running:
            process.terminate()
    records = [json.loads(line) for place, _ in running for line in _lines(place / "results.jsonl")]
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return records


def _lines(path: Path) -> Iterator[str]:
    if path.exists():
        yield from path.read_text().splitlines()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--jobs and --threads."""
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side, each with a share of --count")
    parser.add_argument("--threads", type=int, default=2, help="threads of PoCL in each of several jobs")
