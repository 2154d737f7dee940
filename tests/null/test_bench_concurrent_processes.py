"""benchmarks.concurrent_processes: what becomes of the records of several processes."""

from __future__ import annotations

from argparse import Namespace
from queue import Queue
from typing import Any

from benchmarks.concurrent_processes import gather, summary


def record(**other: Any) -> dict[str, Any]:
    made = {"network": "vgg16", "first": "ab", "differing": 0, "median_ms": 1.0, "longest_ms": 2.0}
    return {**made, "strategy": "queue", "arena_mb": 3.0, "bound_mb": 2.0, **other}


def test_records_of_processes_are_one_row() -> None:
    row = summary("vgg16", [record(), record(differing=2, median_ms=3.0, longest_ms=9.0)], 10)
    assert row["runs"] == 20
    assert row["differing"] == 2
    assert row["first"] == "same"
    assert (row["median_ms"], row["longest_ms"], row["bound"]) == (2.0, 9.0, 1.5)


def test_first_answers_are_compared() -> None:
    assert summary("vgg16", [record(), record(first="cd")], 10)["first"] == "differ"


def test_a_process_without_a_result_is_a_failure() -> None:
    found: Queue[Any] = Queue()
    found.put(record())
    rows = gather(found, "vgg16", Namespace(processes=2, limit=0.05))
    assert "no result" in summary("vgg16", rows, 10)["failed"]
