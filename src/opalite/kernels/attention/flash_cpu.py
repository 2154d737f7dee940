"""Flash attention on CPUs: each work-item streams key and value blocks past some queries of one head."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import hint_of
from ...ops.attention import Attention
from ..codegen.opencl_functions import helper
from ..codegen.vector_types import Vec
from ..kernel import Kernel, Params, register
from ..launch import Launch, Local, ceil_div
from ..matmul.gemm_cpu import tile_rows
from .attention_problem import AttentionProblem

ITEMS_A_CORE = 4  # work-items per core, for load balance
MOST_ROWS = 128  # queries of a work-item, which share staged keys
STAGED = 128 << 10  # bytes of keys and values per block, which fit the L2 cache with the accumulators


def cpu_functions(node: Node, pack: int) -> str:
    """EXPV, TANHV and EXP1 as polynomials. PoCL's built-ins run lane by lane; double has no other version."""
    if node.y.type.storage is DType.FLOAT64:
        return ""
    wide, one = Vec("float", pack), Vec("float", 1)
    needed = [("EXPV", "exp", wide), ("EXP1", "exp", one)]
    if node.as_(Attention).softcap:
        needed.append(("TANHV", "tanh", wide))
    return "".join(f"{helper(fn, t)}#define {macro} {fn}_{t}\n" for macro, fn, t in needed)


@register
class AttentionFlashCpu(Kernel):
    """MR queries in a register tile, BLOCKS key blocks at a time; ROWS queries per work-item, 0: load-balanced."""

    op = "Attention"
    problem = AttentionProblem
    space = {"MR": (8, 7, 6, 5, 4, 3, 2, 1), "ROWS": (0, 8, 16, 32, 64, 128), "BLOCKS": (1, 2, 4, 8)}

    def refuse(self, p: AttentionProblem) -> str | None:
        if not p.device.is_cpu:
            return "register tiles of one work-item are for CPUs"
        needed = _work_bytes(p, 8, 1)
        if needed > p.device.local_mem:
            return f"heads of this size need {needed} bytes of local memory, the device has {p.device.local_mem}"
        return p.refusal()

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        if params["ROWS"] and params["ROWS"] < params["MR"]:
            return "a work-item takes at least one tile of rows"
        rows = self._rows(p, params)
        if _work_bytes(p, rows, params["BLOCKS"]) > p.device.local_mem:
            return f"the blocks do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        return {"MR": tile_rows(p.sizes.queries), "ROWS": 0, "BLOCKS": _blocks(p)}

    def _rows(self, p: AttentionProblem, params: Params) -> int:
        """Queries per work-item, a multiple of MR."""
        s, tile, rows = p.sizes, int(params["MR"]), int(params["ROWS"])
        if not rows:
            pieces = ceil_div(ITEMS_A_CORE * p.device.compute_units, max(1, hint_of(s.batches * s.heads)))
            rows = min(ceil_div(hint_of(s.queries), pieces), MOST_ROWS)
            while rows > tile and _work_bytes(p, rows + tile, params["BLOCKS"]) > p.device.local_mem:
                rows -= tile
        return max(1, ceil_div(rows, tile)) * tile

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        s, rows = p.sizes, self._rows(p, params)
        work = Local(_work_bytes(p, rows, params["BLOCKS"]))
        args = {**p.args(), **p.scale_args(), "rows": rows, "work": work}
        grid = (ceil_div(s.queries, rows), s.heads, s.batches)
        defines = p.defines() | {"PACK": p.device.pack, "MR": params["MR"], "BLOCKS": params["BLOCKS"]}
        return [Launch("attention_stream", args, grid, (1, 1, 1), defines, cpu_functions(p.node, p.device.pack))]


def _blocks(p: AttentionProblem) -> int:
    """Key blocks at a time: as many as fit the cache with their values."""
    block = p.cell * 2 * p.device.pack * (p.sizes.size + _columns(p))
    return next((n for n in (8, 4, 2) if n * block <= STAGED), 1)


def _work_bytes(p: AttentionProblem, rows: int, blocks: int) -> int:
    """Bytes of the kernel's scratch memory for `rows` queries and `blocks` key blocks."""
    size, keys, columns = p.sizes.size, blocks * 2 * p.device.pack, _columns(p)
    return (rows * (size + columns + p.device.pack + 1) + keys * (size + columns + rows)) * p.cell


def _columns(p: AttentionProblem) -> int:
    """Columns of the values, padded to whole vectors."""
    return ceil_div(p.sizes.columns, p.device.pack) * p.device.pack
