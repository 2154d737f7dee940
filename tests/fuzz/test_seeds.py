"""A fixed range of random graphs in both modes. Longer campaigns: `python -m tests.fuzz`, docs/fuzzing.md."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")

from .builder import make_case
from .check import check
from .judge import Fault

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
