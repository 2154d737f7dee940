"""Packed weights of the matrix units, by what the hardware does with the registers of a warp."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_MMA
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.mma.mma_tile import find_tile, mma_refusal, pack_weights, tile_illegal

H200 = read_description("nvidia_h200")


def test_lanes_hold_what_the_instruction_expects() -> None:
    """mma.m16n8k16 as the PTX manual defines it, fed as mma/mma_tile.cl feeds it."""
    rng = np.random.default_rng(0)
    filters, rows = (rng.integers(-8, 8, (n, 9, 4)).astype(np.float16) for n in (20, 16))
    packed = pack_weights(filters)
    tiles, steps = packed.shape[:2]
    quads = np.zeros((16, 4 * steps, 4))
    quads[:, :9] = rows
    got = np.zeros((16, 16 * tiles))
    for t in range(tiles):
        sums = np.zeros((2, 16, 8))
        for s in range(steps):
            for j in range(2):
                a, b = np.zeros((16, 16)), np.zeros((16, 8))
                for lane in range(32):
                    group, thread = divmod(lane, 4)
                    low, high = slice(2 * thread, 2 * thread + 2), slice(2 * thread + 8, 2 * thread + 10)
                    for row in (group, group + 8):
                        a[row, low], a[row, high] = np.split(quads[row, 4 * s + thread], 2)
                    b[low, group], b[high, group] = np.split(packed[t, s, lane, 4 * j : 4 * j + 4], 2)
                sums[j] += a @ b
        for row in range(16):
            for thread in range(4):
                pair = slice(2 * thread, 2 * thread + 2)
                got[row, 16 * t + 4 * thread :][:4] = [*sums[0, row, pair], *sums[1, row, pair]]
    want = rows.reshape(16, -1).astype(np.float64) @ filters.reshape(20, -1).astype(np.float64).T
    np.testing.assert_array_equal(got[:, :20], want)


def test_found_tiles_are_legal() -> None:
    device = replace(H200, quirks=(PTX_MMA,))
    for sizes in ((49, 512, 288), (1, 1000, 80), (1, 4, 1), (100352, 256, 4)):
        assert tile_illegal(find_tile(*sizes, device), device) is None


def test_products_of_no_terms_are_for_other_kernels() -> None:
    """There is no tile for them, so that no time can be told."""
    attrs = {"trans_a": False, "trans_b": False}
    arrays = [np.zeros((3, 0), np.float32), np.zeros((0, 8), np.float32)]
    node = make_node("MatMul", attrs, arrays, const=(1,), precision=DType.FLOAT16)
    assert mma_refusal(node, H200) == "input 1 is empty: there is no tile of no terms"
    assert not find_tile(3, 8, 0, H200)
