"""Hits and misses of caches: counted in a process, summed over processes, and kept whatever happens to the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opalite.cache import hit_counters as cache_stats
from opalite.cache.hit_counters import CACHES, Count, add_counts, all_counts, forget_counts

ONE = dict(zip(CACHES, (Count(3, 1), Count(1, 0), Count(0, 7), Count(2, 2)), strict=True))
WRITER = """
import sys
from pathlib import Path
from opalite.cache.hit_counters import CACHES, Count, add_counts
for _ in range(int(sys.argv[2])):
    add_counts(Path(sys.argv[1]), dict.fromkeys(CACHES, Count(1, 2)))
"""
ENDS = """
from opalite.cache.hit_counters import count_lookup
for hit in (True, True, False):
    count_lookup("plans", hit)
count_lookup("weights", False)
"""


def test_lookups_are_counted_by_cache() -> None:
    before = cache_stats.process_counts()
    for hit in (True, False, True):
        cache_stats.count_lookup("tuning", hit)
    after = cache_stats.process_counts()
    assert after["tuning"] == before["tuning"] + Count(2, 1)
    assert {n: c for n, c in after.items() if n != "tuning"} == {n: c for n, c in before.items() if n != "tuning"}


def test_counts_add_up(tmp_path: Path) -> None:
    assert all_counts(tmp_path) == dict.fromkeys(CACHES, Count())
    add_counts(tmp_path, ONE)
    add_counts(tmp_path, ONE)
    assert all_counts(tmp_path) == {n: c + c for n, c in ONE.items()}
    forget_counts(tmp_path)
    assert all_counts(tmp_path) == dict.fromkeys(CACHES, Count())


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\n",
        b"\xff\xfe\x00\n",
        b"programs 1 2 plans\n",
        b"programs x 1 plans 1 1 tuning 1 1 weights 1 1\n",
        b"programs -4 1 plans 1 1 tuning 1 1 weights 1 1\n",
        b"other 4 1 plans 1 1 tuning 1 1 weights 1 1\n",
    ],
)
def test_what_is_no_count_is_passed_over(tmp_path: Path, rubbish: bytes) -> None:
    add_counts(tmp_path, ONE)
    with open(tmp_path / "counts.txt", "ab") as f:
        f.write(rubbish)
    add_counts(tmp_path, ONE)
    assert all_counts(tmp_path) == {n: c + c for n, c in ONE.items()}


def test_a_long_file_is_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_stats, "_COMPACT_BYTES", 300)
    for _ in range(100):
        add_counts(tmp_path, ONE)
        assert (tmp_path / "counts.txt").stat().st_size <= 400
    assert all_counts(tmp_path)["tuning"] == Count(0, 700)
    assert [p.name for p in tmp_path.iterdir()] == ["counts.txt"]


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    add_counts(tmp_path / "absent", ONE)
    assert not (tmp_path / "absent").exists()


def test_processes_lose_no_line_of_another(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), "150"]
    for process in [subprocess.Popen(command) for _ in range(3)]:
        assert process.wait() == 0
    assert all_counts(tmp_path) == dict.fromkeys(CACHES, Count(450, 900))


@pytest.mark.parametrize("on", [True, False])
def test_a_process_leaves_its_counts_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("OPALITE_CACHE", str(int(on)))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", ENDS], check=True)
    want = {"plans": Count(4, 2), "weights": Count(0, 2)} if on else {}
    assert all_counts(tmp_path) == dict.fromkeys(CACHES, Count()) | want
