"""Which tiles in local memory are taken untuned, and by which kernels (times: benchmarks/results/h200-tiles.jsonl)."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.ir.place import packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.fma.tile_parameters import GemmSize, find_tile, local_bytes, tile_illegal, tile_size
from opalite.kernels.kernel import Binding, kernels_for

DEVICES = {name: read_description(name) for name in description_names()}
H200 = DEVICES["nvidia_h200"]


def conv(batch: int, channels: int, filters: int, size: int, kernel: int) -> Node:
    """A convolution of stride 1 that keeps the size."""
    arrays = [
        np.broadcast_to(np.float32(0), s) for s in ((batch, channels, size, size), (filters, channels, kernel, kernel))
    ]
    attrs = {"strides": (1, 1), "pads": (kernel // 2,) * 4, "dilations": (1, 1), "group": 1}
    return make_node("Conv", attrs, arrays, const=(1,), binding=Binding((packed(4), None), (packed(4),)))


def expected(node: Node, device: DeviceInfo) -> list[str]:
    """Kernels for packed values by expected time."""
    named = ("ConvGemmLocal", "ConvSplitK", "ConvWinograd")
    found = [(k, k.problem(node, device)) for k in kernels_for("Conv") if k.name in named]
    legal = [(k.seconds(p, node.cost()), k.name) for k, p in found if k.refuse(p) is None]
    return [name for _, name in sorted(legal)]


@pytest.mark.parametrize("name", [n for n, d in DEVICES.items() if d.max_work_group_size >= 64 and not d.is_cpu])
@pytest.mark.parametrize(
    "sums", [GemmSize(197, 768, 3072), GemmSize(1009, 131, 17), GemmSize(4096, 4096, 4096), GemmSize(1, 3, 5, 7)]
)
def test_a_tile_fits_every_gpu(name: str, sums: GemmSize) -> None:
    device = DEVICES[name]
    tile = find_tile(sums, device)
    assert tile_illegal(tile, device) is None
    assert local_bytes(tile, 4) <= device.local_mem
    if device.family != "nvidia":  # nobody measured shares and parts there
        assert (tile["SPLIT"], tile["PARTS"]) == (1, 1)


def test_large_products_take_large_tiles_and_few_rows_are_shared_out() -> None:
    large, thin = find_tile(GemmSize(4096, 4096, 4096), H200), find_tile(GemmSize(197, 768, 3072), H200)
    assert tile_size(large) == (128, 128)
    assert (large["SPLIT"], large["PARTS"]) == (1, 1)
    assert tile_size(thin) == (64, 64)
    assert thin["PARTS"] == 8
    assert find_tile(GemmSize(197, 767, 3072), H200, whole=True)["PARTS"] == 1


def test_a_residual_asks_for_groups_that_hide_it() -> None:
    assert tile_size(find_tile(GemmSize(6272, 1024, 256), H200)) == (128, 128)
    assert tile_size(find_tile(GemmSize(100352, 256, 64, 1, 1), H200)) == (128, 64)


def test_which_convolution_is_expected_to_be_fastest() -> None:
    assert expected(conv(32, 256, 256, 14, 3), H200)[0] == "ConvWinograd"
    assert expected(conv(32, 512, 128, 28, 1), H200) == ["ConvGemmLocal", "ConvSplitK"]
    assert expected(conv(1, 512, 512, 7, 3), H200)[0] == "ConvGemmLocal"


def test_local_memory_that_lies_in_global_memory_is_not_used() -> None:
    mali = DEVICES["mali_g76"]
    assert not mali.local_mem_dedicated
    assert "ConvGemmLocal" not in expected(conv(1, 256, 256, 14, 1), mali)


def test_images_are_not_given_up_for_buffers_that_nobody_measured() -> None:
    assert expected(conv(1, 256, 256, 14, 1), DEVICES["adreno_640"])[0] == "ConvSplitK"


def test_halves_go_to_matrix_units_where_bytes_are_what_takes_time() -> None:
    arrays = [np.broadcast_to(np.float32(0), s) for s in ((1, 960, 7, 7), (160, 960, 1, 1))]
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1}
    binding = Binding((packed(4), None), (packed(4),))
    node = make_node("Conv", attrs, arrays, const=(1,), binding=binding, precision=DType.FLOAT16)
    times = {k.name: k.seconds(k.problem(node, H200), node.cost()) for k in kernels_for("Conv") if k.name in NAMES}
    assert min(times, key=lambda name: times[name]) in ("ConvGemmMma", "ConvGemmMmaStaged")
    assert times["ConvGemmLocal"] < times["ConvSplitK"]


NAMES = ("ConvGemmLocal", "ConvGemmMma", "ConvSplitK", "ConvGemmMmaStaged")
