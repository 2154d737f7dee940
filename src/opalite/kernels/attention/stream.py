"""Attention on CPUs: each work-item streams blocks of keys and values past some queries of one head."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.device import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import hint_of
from ...ops.attention import Attention
from ..base import Kernel, Launch, Local, Params, Space, ceil_div
from ..codegen.helpers import helper
from ..codegen.vectors import Vec
from ..matmul.panel import tile_rows
from ..registry import register
from .problem import AttentionProblem, attention_args, attention_defines, attention_refusal, factors, sizes_of

ITEMS_A_CORE = 4  # work-items for each core that balance uneven cores
MOST_ROWS = 64  # queries of a work-item whose sums stay in the first cache for usual head sizes


def cpu_functions(node: Node, pack: int) -> str:
    """EXPV, TANHV and EXP1 by polynomials, as PoCL's built-ins take lane by lane; for double they are all there is."""
    if node.y.type.storage is DType.FLOAT64:
        return ""
    wide, one = Vec("float", pack), Vec("float", 1)
    needed = [("EXPV", "exp", wide), ("EXP1", "exp", one)]
    if node.as_(Attention).softcap:
        needed.append(("TANHV", "tanh", wide))
    return "".join(f"{helper(fn, t)}#define {macro} {fn}_{t}\n" for macro, fn, t in needed)


@register
class AttentionStream(Kernel):
    """MR queries in a register tile; ROWS queries for each work-item, 0 for a number that balances the cores."""

    op = "Attention"
    problem = AttentionProblem
    source = "attention/stream.cl"
    space: ClassVar[Space] = {"MR": (8, 7, 6, 5, 4, 3, 2, 1), "ROWS": (0, 8, 16, 32, 64)}

    def refuse(self, p: AttentionProblem) -> str | None:
        if not p.device.is_cpu:
            return "register tiles of one work-item are for CPUs"
        needed = _work_bytes(p.node, p.device, 8)
        if needed > p.device.local_mem:
            return f"heads of this size need {needed} bytes of local memory, the device has {p.device.local_mem}"
        return attention_refusal(p)

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        if params["ROWS"] and params["ROWS"] < params["MR"]:
            return "a work-item takes at least one tile of rows"
        if _work_bytes(p.node, p.device, self._rows(p.node, params, p.device)) > p.device.local_mem:
            return f"the blocks do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> dict[str, Any]:
        return {"MR": tile_rows(p.sizes.queries), "ROWS": 0}

    def _rows(self, node: Node, params: Params, device: DeviceInfo) -> int:
        """Queries for each work-item, a multiple of MR."""
        p = sizes_of(node)
        tile = int(params["MR"])
        rows = int(params["ROWS"])
        if not rows:
            pieces = ceil_div(ITEMS_A_CORE * device.compute_units, max(1, hint_of(p.batches * p.heads)))
            rows = min(ceil_div(hint_of(p.queries), pieces), MOST_ROWS)
            while rows > tile and _work_bytes(node, device, rows + tile) > device.local_mem:
                rows -= tile
        return max(1, ceil_div(rows, tile)) * tile

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        node = p.node
        point, rows = sizes_of(node), self._rows(node, params, p.device)
        return [
            Launch(
                "attention_stream",
                {**attention_args(p), **factors(node), "rows": rows, "work": Local(_work_bytes(node, p.device, rows))},
                (ceil_div(point.queries, rows), point.heads, point.batches),
                (1, 1, 1),
                attention_defines(p) | {"PACK": p.device.pack, "MR": params["MR"]},
                cpu_functions(node, p.device.pack),
            )
        ]


def _work_bytes(node: Node, device: DeviceInfo, rows: int) -> int:
    """Bytes of the kernel's work area for `rows` queries."""
    p, width = sizes_of(node), 2 * device.pack
    columns = ceil_div(p.columns, width) * width
    elements = rows * (p.size + columns + device.pack + 1) + width * (p.size + columns + rows)
    return elements * (8 if node.y.type.storage is DType.FLOAT64 else 4)
