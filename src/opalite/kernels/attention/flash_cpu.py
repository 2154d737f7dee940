"""Flash attention on CPUs: each work-item streams key and value blocks past some queries of one head."""

from __future__ import annotations

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import hint_of
from ...ops.attention import Attention
from ..codegen.opencl_functions import helper
from ..codegen.vector_types import Vec
from ..kernel import Kernel, Params, register
from ..launch import Launch, Local, ceil_div
from ..matmul.gemm_cpu import tile_rows
from .attention_problem import (
    AttentionProblem,
    attention_args,
    attention_defines,
    attention_refusal,
    scale_args,
    sizes_of,
)

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
        needed = _work_bytes(p.node, p.device, 8, 1)
        if needed > p.device.local_mem:
            return f"heads of this size need {needed} bytes of local memory, the device has {p.device.local_mem}"
        return attention_refusal(p)

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        if params["ROWS"] and params["ROWS"] < params["MR"]:
            return "a work-item takes at least one tile of rows"
        rows = self._rows(p.node, params, p.device)
        if _work_bytes(p.node, p.device, rows, params["BLOCKS"]) > p.device.local_mem:
            return f"the blocks do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        return {"MR": tile_rows(p.sizes.queries), "ROWS": 0, "BLOCKS": _blocks(p.node, p.device)}

    def _rows(self, node: Node, params: Params, device: DeviceInfo) -> int:
        """Queries per work-item, a multiple of MR."""
        p = sizes_of(node)
        tile = int(params["MR"])
        rows = int(params["ROWS"])
        if not rows:
            pieces = ceil_div(ITEMS_A_CORE * device.compute_units, max(1, hint_of(p.batches * p.heads)))
            rows = min(ceil_div(hint_of(p.queries), pieces), MOST_ROWS)
            while rows > tile and _work_bytes(node, device, rows + tile, params["BLOCKS"]) > device.local_mem:
                rows -= tile
        return max(1, ceil_div(rows, tile)) * tile

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        node = p.node
        point, rows = sizes_of(node), self._rows(node, params, p.device)
        work = Local(_work_bytes(node, p.device, rows, params["BLOCKS"]))
        return [
            Launch(
                "attention_stream",
                {**attention_args(p), **scale_args(node), "rows": rows, "work": work},
                (ceil_div(point.queries, rows), point.heads, point.batches),
                (1, 1, 1),
                attention_defines(p) | {"PACK": p.device.pack, "MR": params["MR"], "BLOCKS": params["BLOCKS"]},
                cpu_functions(node, p.device.pack),
            )
        ]


def _blocks(node: Node, device: DeviceInfo) -> int:
    """Key blocks at a time: as many as fit the cache with their values."""
    p = sizes_of(node)
    block = _element_bytes(node) * 2 * device.pack * (p.size + _columns(node, device))
    return next((n for n in (8, 4, 2) if n * block <= STAGED), 1)


def _work_bytes(node: Node, device: DeviceInfo, rows: int, blocks: int) -> int:
    """Bytes of the kernel's scratch memory for `rows` queries and `blocks` key blocks."""
    p, keys, columns = sizes_of(node), blocks * 2 * device.pack, _columns(node, device)
    return (rows * (p.size + columns + device.pack + 1) + keys * (p.size + columns + rows)) * _element_bytes(node)


def _columns(node: Node, device: DeviceInfo) -> int:
    """Columns of the values, padded to whole vectors."""
    return ceil_div(sizes_of(node).columns, device.pack) * device.pack


def _element_bytes(node: Node) -> int:
    return 8 if node.y.type.storage is DType.FLOAT64 else 4
