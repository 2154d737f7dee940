"""MatMul on CPUs: register tiles over panels of b, packed ahead of time, by a launch, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.constants.lazy_array import LazyArray, page_zeros, read_slices
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ir.symbols import hint_of, symbolic_max
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import STORAGE, Arg, Args, Array, Launch, Scratch, Weight, ceil_div
from .matmul_problem import MatmulKernel, MatmulProblem, MatmulSizes

GROUP = (1, 1, 1)
PACK_STEPS = 64  # rows copied by a work-item of matmul/pack_panels.cl
ITEMS_A_CORE = 8  # work-items per core, for load balance
PACKING_ROWS = 256  # fewest rows of a for which packing b at run time pays
CACHED = 4  # part of the last cache that a matrix fills at most, if it is there again in the next run
PACKING_SIZE = 1 << 20  # fewest elements of b for that: smaller ones stay in a core's cache unpacked


def tile_rows(m: int) -> int:
    """Rows of a register tile for `m` rows: of 8 down to 5 the least wasteful, fewer if `m` is smaller."""
    if m <= 8:
        return max(1, m)
    return min((8, 7, 6, 5), key=lambda rows: (ceil_div(m, rows) * rows, -rows)) if m <= 48 else 8


def panel_size(problem: MatmulSizes, width: int) -> int:
    """Elements of one matrix of b in panels of `width` columns."""
    return ceil_div(problem.n, width) * problem.k * width


def to_panels(width: int, transposed: bool, dtype: np.dtype[Any]) -> Callable[[Array | LazyArray], Array]:
    """A function from b[..., K, N] (swapped if `transposed`) to [..., panels, K, width], zero-padded, in slices."""

    def fill(out: Array, b: Array) -> None:
        *batch, k, n = b.shape
        whole, left = divmod(n, width)
        panels = np.moveaxis(out, -2, -3)  # [..., K, panels, width]
        panels[..., :whole, :] = b[..., : whole * width].reshape(*batch, k, whole, width)
        if left:
            panels[..., whole, :left] = b[..., whole * width :]

    def fn(b: Array | LazyArray) -> Array:
        *batch, k, n = (*b.shape[:-2], b.shape[-1], b.shape[-2]) if transposed else b.shape
        out = page_zeros((*batch, ceil_div(n, width), k, width), dtype)
        for part, held in read_slices(b, width if transposed and not batch else 1):
            rows = np.swapaxes(held, -1, -2) if transposed else held
            if batch:
                fill(out[part], rows)
            elif transposed:
                fill(out[part.start // width : ceil_div(part.stop, width)], rows)
            else:
                fill(out[:, part], rows)
        return out

    return fn


@register
class MatmulPanelsCpu(MatmulKernel):
    """MR x NV vectors of accumulators in registers.

    FORM: "panels" (constant b packed ahead of time, other b packed by a launch) or "rows" (b as it is). MR, NV, KS: see
    gemm_cpu.cl. ROWS: rows per work-item, 0 for a load-balanced number.
    """

    space = {
        "FORM": ("panels", "rows"),
        "MR": (8, 7, 6, 5, 4, 3, 2, 1),
        "NV": (2, 1, 3, 4),
        "KS": (1, 2, 4),
        "ROWS": (0, 16, 64, 256),
    }

    def refuse(self, p: MatmulProblem) -> str | None:
        if not p.device.is_cpu:
            return "register tiles of one work-item are for CPUs"
        return p.refusal()

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        s = p.sizes
        if params["FORM"] == "rows" and (s.trans_b or s.n < params["NV"] * p.device.pack):
            return "b must be stored by rows of at least one panel's width"
        if params["MR"] * params["NV"] * params["KS"] > 24:
            return "the sums do not fit the registers"
        if params["MR"] > max(hint_of(s.m), 1):  # correct but slower
            return "the tile has more rows than the product"
        return None

    def no_legal_point(self, p: MatmulProblem) -> str | None:
        return None  # one row of one panel is always legal; the search would try hundreds of points first

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        rows = tile_rows(s.m)
        large = s.m >= PACKING_ROWS and s.k * s.n >= PACKING_SIZE
        form = "panels" if p.node.input(1).is_const or s.trans_b or s.n < p.device.pack or large else "rows"
        vectors = 2 if s.n >= 2 * p.device.pack or (form == "panels" and s.n > p.device.pack) else 1
        # Wide tiles need fewer loads per multiply-add if no columns are wasted. Few rows do not profit: they use the
        # panels of many rows, so that a decoder packs its weights once, if all cores get work.
        wide = 3 * p.device.pack
        pays = rows >= 5 or s.n >= wide * ITEMS_A_CORE * p.device.compute_units
        if form == "panels" and p.device.pack >= 16 and s.n % wide == 0 and pays:
            vectors = 3
        if rows == 1 and form == "rows" and s.n >= 4 * p.device.pack:
            vectors = 4
        tile = rows * vectors
        return {"FORM": form, "MR": rows, "NV": vectors, "KS": 1 if tile >= 8 else 2 if tile >= 6 else 4, "ROWS": 0}

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        node, s = p.node, p.sizes
        chosen = self.defaults(p)
        width = chosen["NV"] * p.device.pack
        padding = ceil_div(s.n, width) * width / max(1, s.n)
        seconds = super().seconds(p, Cost(cost.flops * padding, cost.bytes))
        if chosen["FORM"] == "panels" and not node.input(1).is_const:
            copied = 2 * s.b_count * panel_size(s, width) * node.y.type.storage.size
            seconds += copied / p.device.bandwidth + p.device.launch_s
        return seconds

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        width = params["NV"] * p.device.pack
        panels = ceil_div(s.n, width)
        in_panels = params["FORM"] == "panels"
        launches: list[Launch] = []
        b: Arg = node.input(1)
        if in_panels:
            b, launches = _panels(node, s, params["NV"], p.device)
        rows = params["ROWS"] or _balanced_rows(s, panels, params["MR"], p.device)
        rows = ceil_div(rows, params["MR"]) * params["MR"]
        epilogue = rows_epilogue(node, p.device)
        args: Args = {"a": node.x, "b": b, "y": node.y, **s.args(panel_size(s, width) if in_panels else None)}
        defines = {"MR": params["MR"], "NV": params["NV"], "KS": params["KS"], "PANELS": in_panels}
        defines |= {"FETCH": _fetched(s, params, p.device, node.input(1).type.storage.size)}
        args |= {"rows": rows, **epilogue.args}
        grid = (panels, ceil_div(s.m, rows), s.batches)
        defines |= p.defines(p.device.pack)
        return [*launches, Launch("matmul_panel", args, grid, GROUP, defines, epilogue.prelude)]


def _fetched(s: MatmulSizes, params: Params, device: DeviceInfo, size: int) -> int:
    """Vectors of panels that are fetched ahead at each k.

    A panel that serves one tile is read once a run. Where all panels stay in the cache from run to run, instructions
    that fetch them take load slots from the multiply-adds: 196 kB in 2.1 us instead of 1.7.
    """
    if hint_of(s.m) > params["MR"]:
        return 1
    nbytes = hint_of(s.b_count * panel_size(s, params["NV"] * device.pack)) * size
    return 0 if nbytes <= device.cache_bytes / CACHED else params["NV"]


def _balanced_rows(p: MatmulSizes, panels: int, tile: int, device: DeviceInfo) -> int:
    """Rows per work-item: as many as leave every core several work-items."""
    pieces = symbolic_max([1, ceil_div(ITEMS_A_CORE * device.compute_units, symbolic_max([1, panels * p.batches]))])
    rows: int = symbolic_max([tile, ceil_div(ceil_div(p.m, pieces), tile) * tile])
    return rows


def _panels(node: Node, p: MatmulSizes, vectors: int, device: DeviceInfo) -> tuple[Arg, list[Launch]]:
    """b in panels: packed ahead of time if constant, else by a launch into scratch memory."""
    b = node.input(1)
    storage = b.type.storage
    width = vectors * device.pack
    if b.is_const:
        form = f"panels{width}{'t' if p.trans_b else ''}:{storage}"
        made = np.dtype(storage.np), (*b.shape[:-2], ceil_div(p.n, width), p.k, width)
        return Weight(b, form, to_panels(width, p.trans_b, storage.np), by_slices=True, packed_type=made), []
    scratch = Scratch("panels", math.prod((p.b_count, panel_size(p, width), storage.size)))
    args: Args = {"b": b, "out": scratch, "matrices": p.b_count, "N": p.n, "K": p.k}
    grid = (ceil_div(p.n, width), ceil_div(p.k, PACK_STEPS), p.b_count)
    defines = {"STORAGE": STORAGE[node.y.type.storage], "PACK": device.pack, "NV": vectors, "TRANS_B": p.trans_b}
    return scratch, [Launch("matmul_pack", args, grid, GROUP, defines, source="matmul/pack_panels.cl")]
