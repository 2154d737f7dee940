"""Work-items per row and rows per work-group of kernels that loop over rows (work_group_rows.cl)."""

from __future__ import annotations

from typing import Any

from ...ir.device.device_family import PTX_MMA
from ...ir.device.device_info import DeviceInfo
from ..kernel import Kernel, Params, Space
from ..kernel_sources import read_source

ROW_SPACE: Space = {"WG": (32, 1, 2, 4, 8, 16, 64, 128, 256, 512, 1024), "ROWS": (1, 2, 4, 8, 16, 32, 64)}
"""WG work-items along a row, ROWS rows in a work-group."""

CPU_ELEMENTS = 4096  # fewest elements of a CPU work-group that are worth its start
GPU_ITEMS = 64  # fewest work-items of a GPU work-group
# Elements of a row per work-item on a GPU, with enough rows and with too few; near the best on an H200, where
# rows of 96 and 197 elements were fastest with 16 work-items.
GPU_SHARE, GPU_SHARE_FEW = 16, 4
SHORT_ROW_ITEMS = 16
# Rows of this length gain from more work-items than linked launches have (linked_ptx_kernels.py).
LONG_ROW = 8192


def row_group(columns: int, rows: int, device: DeviceInfo) -> Params:
    """WG and ROWS for `rows` rows of `columns` elements: a work-item per row on a CPU, several on a GPU."""
    if device.is_cpu:
        spread = max(1, rows // (4 * device.compute_units))
        return {"WG": 1, "ROWS": power_of_two(min(CPU_ELEMENTS // max(columns, 1), spread, 16))}
    limit = device.max_work_group_size
    few = rows <= 2 * device.compute_units
    wanted = power_of_two(columns // (GPU_SHARE_FEW if few else GPU_SHARE))
    least = min(SHORT_ROW_ITEMS, power_of_two(columns // 2))
    wg = min(max(wanted, least), power_of_two(limit), 1024 if few and columns > LONG_ROW else 256)
    return {"WG": wg, "ROWS": min(max(1, GPU_ITEMS // wg), power_of_two(limit // wg), 64)}


def row_width(columns: int, device: DeviceInfo) -> int:
    """Elements of a row that a work-item takes at once; on a CPU at most as many lanes as a short row fills."""
    if not device.is_cpu:
        return 2
    return min(16, device.native_float_width, 1 << max(columns - 1, 0).bit_length())


def row_group_refusal(params: Params, device: DeviceInfo) -> str | None:
    """The reason why the device cannot run work-groups of WG * ROWS work-items, or None."""
    items = params["WG"] * params["ROWS"]
    if items > device.max_work_group_size or params["ROWS"] > device.max_work_item_sizes[1]:
        return f"the device runs at most {device.max_work_group_size} work-items in a group"
    if device.is_cpu and params["WG"] > 1:
        return "a CPU's work-item walks its row alone"
    return None


class RowKernel(Kernel):
    """Base class of kernels whose work-groups have ROWS rows, with WG work-items each."""

    def illegal(self, p: Any, params: Params) -> str | None:
        return row_group_refusal(params, p.device)


def row_prelude(device: DeviceInfo) -> str:
    """The prelude of row kernels.

    With sub-groups or warps, these reduce sums and maxima. Rows are read in blocks if the device has an instruction for
    that.
    """
    text = read_source("include/reduce_lanes.cl") + read_source("reduce/work_group_rows.cl")
    if device.sub_groups:
        text += read_source("reduce/sub_group_fold.cl")
    elif PTX_MMA in device.quirks:
        text += read_source("reduce/warp_shuffle_fold.cl")
        text += f"#if FOLDS_BY_WARPS\n{read_source('reduce/sub_group_fold.cl')}#endif\n"
    return text + read_source("reduce/intel_block_loads.cl") if device.block_loads else text


def power_of_two(n: int) -> int:
    """The largest power of two that is at most `n`; 1 below that."""
    return 1 << max(n, 1).bit_length() - 1
