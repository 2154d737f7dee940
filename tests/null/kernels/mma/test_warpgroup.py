"""Packed weights of Hopper's warpgroups, by what the hardware reads, and the plans of the H200 with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opalite.ir import DeviceInfo
from opalite.ir.device_family import PTX_WGMMA
from opalite.ir.dtype import DType
from opalite.kernels.mma.warpgroup import find_tile, legal_tiles, local_bytes, pack_chunks, tile_illegal
from opalite.kernels.registry import kernels_for
from opalite.run.execute.node import make_node

H200 = DeviceInfo.from_json((Path(__file__).parents[3] / "fixtures" / "devices" / "nvidia_h200.json").read_text())
WARPGROUPS = replace(H200, quirks=tuple({*H200.quirks, PTX_WGMMA}))
PLAIN = replace(H200, quirks=tuple(q for q in H200.quirks if q != PTX_WGMMA))


@pytest.mark.parametrize("columns", [64, 128, 192, 256])
def test_the_units_read_what_the_kernel_means(columns: int) -> None:
    """wgmma.m64nNk16 as the PTX manual defines it, without swizzling, fed as mma/warpgroup.cl feeds it."""
    rng = np.random.default_rng(0)
    filters, rows = (rng.integers(-8, 8, (n, 19, 4)).astype(np.float16) for n in (300, 16))
    packed = pack_chunks(filters, columns)
    tiles, chunks = packed.shape[:2]
    quads = np.zeros((16, 8 * chunks, 4))
    quads[:, :19] = rows
    got = np.zeros((16, columns * tiles))
    for t in range(tiles):
        sums = np.zeros((16, columns))
        for c in range(chunks):
            for step in range(2):
                memory = packed[t, c, step].reshape(-1)  # halves
                a, b = np.zeros((16, 16)), np.zeros((16, columns))
                for row in range(16):
                    for thread in range(4):
                        low, high = np.split(quads[row, 8 * c + 4 * step + thread], 2)
                        a[row, 2 * thread : 2 * thread + 2], a[row, 2 * thread + 8 : 2 * thread + 10] = low, high
                for k in range(16):
                    for n in range(columns):  # 256 bytes from 8 columns to the next, 128 from 8 terms to the next
                        b[k, n] = memory[(n // 8 * 256 + k // 8 * 128 + n % 8 * 16) // 2 + k % 8]
                sums += a @ b
        for block in range(columns // 16):
            for thread in range(4):
                first, second = (sums[:, block * 16 + 8 * j + 2 * thread :][:, :2] for j in range(2))
                at = t * columns + block * 16 + 4 * thread
                got[:, at : at + 4] = np.concatenate([first, second], 1)
    want = rows.reshape(16, -1).astype(np.float64) @ filters.reshape(300, -1).astype(np.float64).T
    np.testing.assert_array_equal(got[:, :300], want)


def test_found_tiles_are_legal() -> None:
    for sizes in ((49, 512, 288), (8192, 8192, 2048), (17, 64, 1), (100352, 256, 16)):
        assert tile_illegal(find_tile(*sizes, WARPGROUPS)) is None
    assert all(local_bytes(p) <= 227 << 10 for p in legal_tiles())
    assert "local memory" in str(tile_illegal({"BN": 256, "PW": 3, "STAGES": 14, "SEATS": 4}))
    assert "registers" in str(tile_illegal({"BN": 256, "PW": 4, "STAGES": 4, "SEATS": 4}))


def refusal(device: DeviceInfo, m: int = 1024, k: int = 1024, n: int = 1024) -> str | None:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((m, k), (k, n)))
    attrs = {"trans_a": False, "trans_b": False}
    node = make_node("MatMul", attrs, [a, b], const=(1,), precision=DType.FLOAT16)
    kernel = next(k for k in kernels_for("MatMul") if k.name == "MatmulWarpgroup")
    return kernel.refuse(kernel.problem(node, device))


def test_refusals_say_why() -> None:
    assert refusal(WARPGROUPS) is None
    assert "wgmma" in str(refusal(PLAIN))
    assert "multiple of 8" in str(refusal(WARPGROUPS, k=1020))
    assert "columns" in str(refusal(WARPGROUPS, n=1022))
    assert "rows" in str(refusal(WARPGROUPS, m=16))


@pytest.mark.parametrize(("sizes", "wanted"), [((8192, 8192, 8192), True), ((197, 768, 768), False)])
def test_the_estimate_takes_them_for_large_products(sizes: tuple[int, int, int], wanted: bool) -> None:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in (sizes[:2], sizes[1:]))
    node = make_node("MatMul", {"trans_a": False, "trans_b": False}, [a, b], const=(1,), precision=DType.FLOAT16)
    seconds = {}
    for kernel in kernels_for("MatMul"):
        problem = kernel.problem(node, WARPGROUPS)
        if kernel.refuse(problem) is None:
            seconds[kernel.name] = kernel.seconds(problem, node.cost())
    assert (min(seconds, key=lambda name: seconds[name]) == "MatmulWarpgroup") == wanted
