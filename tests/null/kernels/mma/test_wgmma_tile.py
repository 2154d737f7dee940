"""Packed weights of Hopper's warpgroups, by what the hardware reads, and the plans of the H200 with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_WGMMA
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.ir.place import packed
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.symbols import Trace
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding, Kernel, kernels_for
from opalite.kernels.mma.wgmma_tile import (
    WgmmaProblem,
    find_tile,
    legal_tiles,
    local_bytes,
    pack_chunks,
    tile_cycles,
    tile_illegal,
)
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.plan.program import LaunchStep

from ....helpers.graphs import GraphMaker

H200 = read_description("nvidia_h200")
WARPGROUPS = replace(H200, quirks=tuple({*H200.quirks, PTX_WGMMA}))
NORM = {"axis": 2, "epsilon": 1e-5}
PLAIN = replace(H200, quirks=tuple(q for q in H200.quirks if q != PTX_WGMMA))


@pytest.mark.parametrize("columns", [64, 128, 192, 256])
def test_the_units_read_what_the_kernel_means(columns: int) -> None:
    """wgmma.m64nNk16 as the PTX manual defines it, without swizzling, fed as mma/wgmma_tile.cl feeds it."""
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
        for pieces in (False, True):
            assert tile_illegal(find_tile(WgmmaProblem(*sizes, pieces, 1), WARPGROUPS)) is None
    assert all(local_bytes(p) <= 227 << 10 for p in legal_tiles())
    looking = find_tile(WgmmaProblem(1576, 3072, 192, False, 0, finds_statistics=True), WARPGROUPS)
    assert (looking["BN"], looking["PW"], looking["PARTS"]) == (224, 3, 1)
    assert 224 not in {p["BN"] for p in legal_tiles()}
    assert "local memory" in str(tile_illegal({"BN": 256, "PW": 3, "STAGES": 14, "SEATS": 4}))
    assert "registers" in str(tile_illegal({"BN": 256, "PW": 4, "STAGES": 4, "SEATS": 4}))


def test_few_tiles_of_many_terms_are_shared_out() -> None:
    few, many = (find_tile(WgmmaProblem(n, 256, 4608, True, 0), WARPGROUPS) for n in (4225, 270400))
    assert few["PARTS"] > 2
    assert many["PARTS"] == 1


def test_what_costs_is_counted() -> None:
    tile = {"BN": 64, "PW": 2, "STAGES": 4, "SEATS": 4, "PARTS": 1}
    plain = tile_cycles(tile, WgmmaProblem(65536, 64, 144, False, 0), WARPGROUPS)
    assert tile_cycles(tile, WgmmaProblem(65536, 64, 144, True, 0), WARPGROUPS) > plain
    assert tile_cycles(tile, WgmmaProblem(65536, 64, 144, False, 1), WARPGROUPS) > plain


def refusal(device: DeviceInfo, m: int = 1024, k: int = 1024, n: int = 1024) -> str | None:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((m, k), (k, n)))
    attrs = {"trans_a": False, "trans_b": False}
    node = make_node("MatMul", attrs, [a, b], const=(1,), precision=DType.FLOAT16)
    kernel = next(k for k in kernels_for("MatMul") if k.name == "MatmulWgmma")
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
    assert (min(seconds, key=lambda name: seconds[name]) == "MatmulWgmma") == wanted


@pytest.mark.parametrize(
    ("sizes", "wanted"), [((1576, 768, 2304), True), ((197, 768, 2304), False), ((1576, 192, 576), False)]
)
def test_they_normalise_rows_where_they_are_far_ahead(sizes: tuple[int, int, int], wanted: bool) -> None:
    m, k, n = sizes
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((m, k), (k, n)))
    attrs = {"trans_a": False, "trans_b": False, "epsilon": 1e-5}
    node = make_node("NormalizedMatMul", attrs, [a, b], const=(1,), precision=DType.FLOAT16)
    kernel = next(k for k in kernels_for("NormalizedMatMul") if k.name == "NormMatmulWgmma")
    why = kernel.refuse(kernel.problem(node, WARPGROUPS))
    assert (why is None) == wanted
    assert wanted or "times as long" in str(why)


def test_an_open_batch_is_judged_at_the_size_at_hand() -> None:
    trace, g = Trace(), GraphMaker()
    n = g.add("n", "Normalize", g.input("x", trace.symbol(8, "n"), 197, 768), None, None, kind="layer", **NORM)
    graph = g.done(g.add("y", "MatMul", n, g.noise("w", 768, 2304), trans_a=False, trans_b=False))
    graph.trace = trace
    planned = plan(graph, PlanOptions(PrecisionPolicy(Precision.FP16)), Knowledge(WARPGROUPS))
    assert "NormMatmulWgmma" in {s.kernel for s in planned.program.steps if isinstance(s, LaunchStep)}
    assert planned.template is not None
    assert planned.template.holds((32,))


def convolution(channels: int, filters: int, size: int, kernel: int, batch: int) -> Node:
    arrays = [
        np.broadcast_to(np.float32(0), s) for s in ((batch, channels, size, size), (filters, channels, kernel, kernel))
    ]
    attrs = {"strides": (1, 1), "pads": (kernel // 2,) * 4, "dilations": (1, 1), "group": 1}
    layout = Binding((packed(4), None), (packed(4),))
    return make_node("Conv", attrs, arrays, const=(1,), binding=layout, precision=DType.FLOAT16)


def kernels_on(node: Node) -> dict[str, Kernel]:
    return {k.name: k for k in kernels_for("Conv") if k.refuse(k.problem(node, WARPGROUPS)) is None}


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((256, 256, 14, 3, 32), True),  # measured: 27 us, 40 by the next best
        ((64, 64, 256, 3, 1), True),  # 25 and 31 us
        ((512, 512, 28, 3, 1), True),  # 20 and 27 us
        ((2048, 512, 65, 1, 1), True),  # 35 and 64 us
        ((64, 32, 512, 3, 1), False),  # 83 and 72 us
        ((512, 512, 7, 3, 1), False),  # of few positions launches are linked
    ],
)
def test_convolutions_are_ordered_as_an_h200_ordered_them(sizes: tuple[int, int, int, int, int], wanted: bool) -> None:
    node = convolution(*sizes)
    seconds = {n: k.seconds(k.problem(node, WARPGROUPS), node.cost()) for n, k in kernels_on(node).items()}
    assert (min(seconds, key=lambda name: seconds[name]) == "ConvGemmWgmma") == wanted


def test_convolutions_that_are_left_to_others() -> None:
    assert "ConvGemmWgmma" in kernels_on(convolution(64, 20, 9, 3, 1))
    assert "ConvGemmWgmma" not in kernels_on(convolution(48, 20, 9, 3, 1))
    assert "ConvGemmWgmma" not in kernels_on(convolution(64, 20, 4, 3, 1))
