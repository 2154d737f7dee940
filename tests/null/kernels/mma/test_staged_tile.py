"""Tiles of the kernels that work from stages: legal on the H200, chosen by size, weights padded to whole stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opalite.ir.device.device_descriptions import read_description
from opalite.kernels.mma.mma_cost import FEWEST_POSITIONS, mma_seconds
from opalite.kernels.mma.mma_tile import pack_weights
from opalite.kernels.mma.staged_tile import (
    find_tile,
    group_size,
    legal_tiles,
    pack_stages,
    stage_bytes,
    tile_cycles,
    tile_defines,
    tile_grid,
    tile_illegal,
    tile_size,
)
from opalite.ops.operator import Cost

H200 = read_description("nvidia_h200")
SIZES = [(100352, 256, 16), (100352, 64, 144), (3136, 64, 144), (197, 768, 192), (49, 512, 1152), (17, 4, 1)]


def test_tiles_fit_the_device() -> None:
    tiles = list(legal_tiles(H200))
    assert len(tiles) > 12
    for tile in tiles:
        assert stage_bytes(tile) <= H200.local_mem
        assert group_size(tile) <= 256
        assert tile_defines(tile)["KEEP"] == tile["STAGES"] - 2


@pytest.mark.parametrize("size", SIZES)
def test_a_tile_is_found_and_its_grid_covers_the_results(size: tuple[int, int, int]) -> None:
    positions, channels, _ = size
    tile = find_tile(*size, H200)
    assert tile_illegal(tile, H200) is None
    (rows, columns), (across, down) = tile_size(tile), tile_grid(tile, positions, channels)[0]
    assert across // group_size(tile) * rows >= positions
    assert down * columns >= channels


def test_small_grids_get_small_tiles() -> None:
    large, small = find_tile(100352, 256, 576, H200), find_tile(49, 512, 1152, H200)
    assert np.prod(tile_size(large)) > 4 * np.prod(tile_size(small))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"PW": 4, "NW": 4}, "work-items"),
        ({"SPLIT": 2, "SL": 1, "PW": 1}, "whole slabs"),
        ({"STAGES": 4}, "local memory"),
    ],
)
def test_tiles_that_are_refused(change: dict[str, int], why: str) -> None:
    tile = {"WM": 4, "WN": 4, "PW": 2, "NW": 2, "SPLIT": 1, "SL": 1, "STAGES": 3}
    assert tile_illegal(tile, H200) is None
    assert why in (tile_illegal({**tile, **change}, H200) or "")


def test_local_memory_bounds_the_stages() -> None:
    assert not list(legal_tiles(replace(H200, local_mem=4096)))


def test_weights_end_with_a_whole_stage() -> None:
    quads = np.random.default_rng(0).integers(-8, 8, (20, 9, 4)).astype(np.float16)
    packed = pack_stages(quads, 2)
    assert packed.shape == (2, 4, 32, 8)
    np.testing.assert_array_equal(packed[:, :3], pack_weights(quads))
    assert not packed[:, 3:].any()


def test_the_better_kind_counts_as_a_share_of_the_peak() -> None:
    cost = Cost(2.0 * 100352 * 256 * 576, 1e8)
    both = [mma_seconds(100352, 256, 144, H200, cost, staged=staged) for staged in (False, True)]
    assert both[1] < both[0]
    few = [mma_seconds(FEWEST_POSITIONS - 1, 256, 144, H200, cost, staged=staged) for staged in (False, True)]
    assert few[0] == few[1] == pytest.approx(min(both))


@pytest.mark.parametrize(
    ("size", "paired", "staged"),
    [
        ((100352, 256, 16), True, True),  # measured: 48 us with stages, 155 us without
        ((401408, 96, 4), True, True),  # 45 and 61 us
        ((50176, 64, 144), False, True),  # 23 and 39 us
        ((6272, 256, 576), False, False),  # 47 and 44 us
        ((196, 512, 1152), False, False),  # 20 and 13 us
        ((196, 256, 576), False, False),  # 11 and 7 us
    ],
)
def test_the_kinds_are_ordered_as_an_h200_ordered_them(size: tuple[int, int, int], paired: bool, staged: bool) -> None:
    with_stages, without = (
        mma_seconds(*size, H200, Cost(1e9, 1e6), staged=kind, paired=paired) for kind in (True, False)
    )
    assert (with_stages < without) == staged


def test_wide_copies_cost_less() -> None:
    tile = find_tile(100352, 256, 144, H200)
    narrow, wide = (tile_cycles(tile, 100352, 256, 144, H200, paired=paired) for paired in (False, True))
    assert wide < narrow
