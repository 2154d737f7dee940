"""Untuned tiles of packed convolutions: layers share them where that costs next to nothing."""

from __future__ import annotations

import dataclasses
import math

import pytest

from opalite.cost.cost_tables import RegisterTile
from opalite.ir.device.device_descriptions import read_description
from opalite.kernels.conv.register_tiles import find_tile, tile_refusal

CPU = dataclasses.replace(read_description("pocl_avx512"), compute_units=2)
# Positions and output blocks of MobileNetV2's 1x1 convolutions.
LAYERS = [(12544, 1), (12544, 6), (3136, 2), (3136, 9), (784, 2), (784, 12), (196, 4), (196, 24), (196, 6), (196, 36)]
LAYERS += [(49, 10), (49, 60), (49, 20), (49, 80)]


def tiles() -> list[tuple[int, int]]:
    return [find_tile(columns, 1, blocks, 16, CPU) for columns, blocks in LAYERS]


def test_few_tiles_serve_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tiles()
    assert all(tile_refusal(*tile, 16, CPU) is None for tile in shared)
    assert len(set(shared)) <= 6
    exact = dataclasses.replace(RegisterTile.of(CPU), slack=1.0)
    monkeypatch.setattr(RegisterTile, "of", lambda device: exact)
    own = tiles()
    assert len(set(own)) >= 8
    assert shared[3] == (9, 3), "nine blocks are three times three"


def test_a_shared_tile_does_not_waste_what_is_computed() -> None:
    width = find_tile(49, 1, 20, 16, CPU)[0]
    assert math.ceil(49 / width) * width <= 54
    assert find_tile(3, 1, 1, 16, CPU)[0] <= 3
