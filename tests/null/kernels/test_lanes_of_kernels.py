"""Work-groups of all kernels fill waves, those that no recorded plan has included, on GPUs of five vendors."""

from __future__ import annotations

import math

import pytest

from opalite.ir.device.default_workgroups import size_grid
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_info import DeviceInfo
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import kernels_for
from opalite.kernels.node_launches import launches_of

from ...device.kernels.test_oclgrind import SAMPLES as PRIME
from ...helpers.kernel_nodes import samples

ALIKE = list(samples())
LEAST = 0.5
"""The share of the lanes of a launch of two work-groups or more, whose last ones may be nearly empty."""
BELOW = {
    "append_bytes": "a row's largest element is found by 32 work-items",
    "attention_tile": "one query has no rows to share",
    "normalize_combine": "partial sums of a channel are few",
    "recurrent_resident": "a work-group keeps the weights of as many units as fit its local memory",
    "reduce_lines": "a line gives each work-item 16 elements",
}


@pytest.mark.parametrize("name", ["adreno_750", "mali_g76", "intel_arc_b580", "amd_rx_6800", "nvidia_h200"])
def test_work_groups_fill_waves(name: str) -> None:
    device, tried = read_description(name), set[str]()
    for op, attrs, arrays, const in (*PRIME, *ALIKE):
        for kernel in kernels_for(op):
            p = kernel.problem(make_node(op, attrs, arrays, const=const), device)
            if kernel.tier != "optimized" or kernel.refuse(p) or kernel.no_legal_point(p):
                continue
            placed = kernel.problem(make_node(op, attrs, arrays, const=const, binding=kernel.bindings(p)[0]), device)
            tried.add(kernel.name)
            for x in launches_of(kernel, placed, kernel.defaults(placed)):
                share, items = lanes_busy(x.grid, x.group, device)
                where = f"{kernel.name}, {x.entry}: grid {x.grid} by {x.group}"
                if math.prod(x.grid) >= 2 * max(items, device.wave_size) and x.entry not in BELOW:
                    assert items >= device.wave_size, where
                    assert share >= LEAST, f"{where}, {share:.2f} of the lanes are busy"
    assert len(tried) > 70


def lanes_busy(grid: tuple[int, ...], group: tuple[int, ...] | None, device: DeviceInfo) -> tuple[float, int]:
    """(the fewest waves for the work-items as a share of those taken, work-items of a group)."""
    if not all(grid):
        return 1.0, device.wave_size
    wave = device.wave_size
    sized, local = size_grid(grid, group, device)
    items = math.prod(local)
    groups = math.prod(sized) // items
    return -(-math.prod(grid) // wave) / (groups * -(-items // wave)), items
