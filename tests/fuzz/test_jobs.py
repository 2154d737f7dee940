"""Campaigns side by side: seeds are shared out, and all records come together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .jobs import shares


def test_shares_cover_the_seeds_once() -> None:
    for count in (1, 3, 10, 17):
        found = shares(100, count, 4)
        assert [s for share in found for s in share] == list(range(100, 100 + count))
        assert all(found)


def test_two_jobs_run_every_seed(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--count",
        "5",
        "--seed",
        "40",
        "--jobs",
        "2",
        "--out",
        str(tmp_path),
    ]
    path = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env={**os.environ, **path}, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("5 graphs in ")
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 5
