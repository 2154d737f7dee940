"""A fixed range of random graphs in both modes. Longer campaigns: `python -m tests.fuzz`, docs/fuzzing.md."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from .builder import make_case
from .campaign import Campaign, run_campaign
from .check import check
from .judge import Fault

LOOSE_SEEDS = 120
SAVED_SEEDS = 60
NULL_SEEDS, NULL_CHUNK = 100, 25
DEVICE_SEEDS, DEVICE_CHUNK = 9, 3


def faults(seeds: range, mode: str) -> list[str]:
    found = []
    for seed in seeds:
        case = make_case(seed)
        if case is None:
            continue
        try:
            check(case, mode, seed)
        except Fault as e:
            found.append(f"seed {seed}: {e}")
    return found


@pytest.mark.parametrize("first", range(0, NULL_SEEDS, NULL_CHUNK))
def test_planned_without_a_device(first: int) -> None:
    found = faults(range(first, first + NULL_CHUNK), "null")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("first", range(0, DEVICE_SEEDS, DEVICE_CHUNK))
def test_run_on_the_device(first: int) -> None:
    found = faults(range(first, first + DEVICE_CHUNK), "device")
    assert not found, "\n".join(found)


def test_what_the_document_forbids_and_onnxruntime_runs(tmp_path: Path) -> None:
    """In a process of its own, which onnxruntime may end."""
    found = run_campaign(Campaign("null", 0, LOOSE_SEEDS, tmp_path, loosen=True))
    assert found.seeds == LOOSE_SEEDS
    assert not found.faults, "\n".join(f"seed {r['seed']}: {r['kind']}: {r['text'][:500]}" for r in found.faults)


def test_what_onnxruntime_saves(tmp_path: Path) -> None:
    """Graphs after its optimiser."""
    found = run_campaign(Campaign("null", 0, SAVED_SEEDS, tmp_path, saved=True))
    assert found.seeds == SAVED_SEEDS
    assert not found.faults, "\n".join(f"seed {r['seed']}: {r['kind']}: {r['text'][:500]}" for r in found.faults)
