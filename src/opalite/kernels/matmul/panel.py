"""MatMul on CPUs: register tiles over panels of b, which are made ahead of time, on the fly, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ops.base import Cost
from ..base import Arg, Array, Kernel, Launch, Params, Scratch, Space, Weight, ceil_div
from ..codegen.epilogue import rows_epilogue
from ..registry import register
from .flat import common_defines, common_refusal
from .problem import Problem, problem_of

GROUP = (1, 1, 1)
PACK_STEPS = 64  # rows that one work-item of matmul/pack.cl copies
ITEMS_A_CORE = 8  # work-items for each core that balance uneven cores
PACKING_ROWS = 256  # packing b on the fly pays from so many rows of a on
PACKING_SIZE = 1 << 20  # and from so many elements of b on: smaller ones stay in a core's cache as they are


def tile_rows(m: int) -> int:
    """Rows of a register tile for `m` rows in all: of 8 down to 5 what wastes least, fewer where there are fewer."""
    if m <= 8:
        return max(1, m)
    return min((8, 7, 6, 5), key=lambda rows: (ceil_div(m, rows) * rows, -rows)) if m <= 48 else 8


def panel_size(problem: Problem, width: int) -> int:
    """Elements of one matrix of b in panels of `width` columns."""
    return ceil_div(problem.n, width) * problem.k * width


def to_panels(width: int, transposed: bool, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
    """Function from b[..., K, N] (swapped if `transposed`) to [..., panels, K, width], zeros past N."""

    def fn(b: Array) -> Array:
        b = np.swapaxes(b, -1, -2) if transposed else b
        *batch, k, n = b.shape
        panels = ceil_div(n, width)
        wide = np.zeros((*batch, k, panels * width), dtype)
        wide[..., :n] = b
        return np.ascontiguousarray(np.moveaxis(wide.reshape(*batch, k, panels, width), -3, -2))

    return fn


@register
class MatmulPanel(Kernel):
    """MR x NV vectors of sums in registers.

    FORM: "panels" (constant b reordered ahead of time, any other b by a launch in front) or "rows" (b as it is).
    MR, NV, KS: see the source. ROWS: rows that one work-item walks down, 0 for a number that balances the cores.
    """

    half_sums = True
    op = "MatMul"
    source = "matmul/panel.cl"
    space: ClassVar[Space] = {
        "FORM": ("panels", "rows"),
        "MR": (8, 7, 6, 5, 4, 3, 2, 1),
        "NV": (2, 1, 3, 4),
        "KS": (1, 2, 4),
        "ROWS": (0, 16, 64, 256),
    }

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        if not device.is_cpu:
            return "register tiles of one work-item are for CPUs"
        return common_refusal(node, device)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        p = problem_of(node)
        if params["FORM"] == "rows" and (p.trans_b or p.n < params["NV"] * device.pack):
            return "b must be stored by rows of at least one panel's width"
        if params["MR"] * params["NV"] * params["KS"] > 24:
            return "the sums do not fit the registers"
        if params["MR"] > max(p.m, 1):
            return "the tile has more rows than the product"
        return None

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        p = problem_of(node)
        rows = tile_rows(p.m)
        large = p.m >= PACKING_ROWS and p.k * p.n >= PACKING_SIZE
        form = "panels" if node.input(1).is_const or p.trans_b or p.n < device.pack or large else "rows"
        vectors = 2 if p.n >= 2 * device.pack or (form == "panels" and p.n > device.pack) else 1
        if form == "panels" and rows >= 5 and device.pack >= 16 and p.n % (3 * device.pack) == 0:
            vectors = 3  # fewer loads for each multiply-add, where no columns are wasted
        if rows == 1 and form == "rows" and p.n >= 4 * device.pack:
            vectors = 4
        tile = rows * vectors
        return {
            "FORM": form,
            "MR": rows,
            "NV": vectors,
            "KS": 1 if tile >= 8 else 2 if tile >= 6 else 4,
            "ROWS": 0,
        }

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        p = problem_of(node)
        chosen = self.defaults(node, device)
        width = chosen["NV"] * device.pack
        padding = ceil_div(p.n, width) * width / max(1, p.n)
        seconds = super().seconds(node, device, Cost(cost.flops * padding, cost.bytes))
        if chosen["FORM"] == "panels" and not node.input(1).is_const:
            copied = 2 * p.b_count * panel_size(p, width) * node.y.type.storage.size
            seconds += copied / device.bandwidth + device.launch_s
        return seconds

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        p = problem_of(node)
        width = params["NV"] * device.pack
        panels = ceil_div(p.n, width)
        in_panels = params["FORM"] == "panels"
        launches: list[Launch] = []
        b: Arg = node.input(1)
        if in_panels:
            b, launches = _panels(node, p, params["NV"], device)
        rows = params["ROWS"] or _balanced_rows(p, panels, params["MR"], device)
        rows = ceil_div(rows, params["MR"]) * params["MR"]
        epilogue = rows_epilogue(node, device)
        table = p.table(panel_size(p, width) if in_panels else None)
        sizes = (max(len(p.batch), 1), p.batches, p.m, p.n, p.k, p.lda, p.ldb, rows)
        defines = {"MR": params["MR"], "NV": params["NV"], "KS": params["KS"], "PANELS": in_panels}
        defines |= {"FETCH": params["NV"] if p.m <= params["MR"] else 1}
        launches.append(
            Launch(
                "matmul_panel",
                (node.x, b, node.y, table, *sizes, *epilogue.args),
                (panels, ceil_div(p.m, rows), p.batches),
                GROUP,
                common_defines(node, p, device.pack) | defines,
                epilogue.prelude,
            )
        )
        return launches


def _balanced_rows(p: Problem, panels: int, tile: int, device: DeviceInfo) -> int:
    """Rows for each work-item: as many as leave every core several work-items."""
    pieces = max(1, ceil_div(ITEMS_A_CORE * device.compute_units, max(1, panels * p.batches)))
    return max(tile, ceil_div(ceil_div(p.m, pieces), tile) * tile)


def _panels(node: Node, p: Problem, vectors: int, device: DeviceInfo) -> tuple[Arg, list[Launch]]:
    """b in panels: prepared ahead of time if constant, else in scratch memory by a launch."""
    b = node.input(1)
    storage = b.type.storage
    width = vectors * device.pack
    if b.is_const:
        form = f"panels{width}{'t' if p.trans_b else ''}:{storage}"
        return Weight(b, form, to_panels(width, p.trans_b, storage.np)), []
    scratch = Scratch("panels", math.prod((p.b_count, panel_size(p, width), storage.size)))
    launch = Launch(
        "matmul_pack",
        (b, scratch, p.b_count, p.n, p.k),
        (ceil_div(p.n, width), ceil_div(p.k, PACK_STEPS), p.b_count),
        GROUP,
        {"STORAGE": common_defines(node, p, device.pack)["STORAGE"], "PACK": device.pack}
        | {"NV": vectors, "TRANS_B": p.trans_b},
        source="matmul/pack.cl",
    )
    return scratch, [launch]
