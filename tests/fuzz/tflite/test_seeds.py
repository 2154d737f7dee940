"""A fixed range of random .tflite graphs in both modes. Longer campaigns: `python -m tests.fuzz.tflite`."""

from __future__ import annotations

import pytest

pytest.importorskip("ai_edge_litert")

from ..judge import Fault
from .check import check
from .graph import make_case

QUANTIZED = (
    "to_and_fro,arithmetic,compared,activations,soft,pooled,reduced,bilinear_integers,convolved,multiplied,hybrid,"
    "concatenation,pad,extremes,max_pool"
)
DEVICE_SEEDS = 6


def faults(seeds: range, mode: str, most: int, only: str) -> list[str]:
    found = []
    for seed in seeds:
        case = make_case(seed, most, only)
        if case is None:
            continue
        try:
            check(case, mode, seed)
        except Fault as e:
            found.append(f"seed {seed}, {case.operators}: {e}")
    return found


@pytest.mark.parametrize("only", QUANTIZED.split(","))
def test_quantized_operators(only: str) -> None:
    found = faults(range(12), "null", 1, only)
    assert not found, "\n".join(found)


def test_quantized_graphs() -> None:
    found = faults(range(20), "null", 6, QUANTIZED)
    assert not found, "\n".join(found)


def test_quantized_graphs_on_the_device() -> None:
    found = faults(range(100, 100 + DEVICE_SEEDS), "device", 3, QUANTIZED)
    assert not found, "\n".join(found)
