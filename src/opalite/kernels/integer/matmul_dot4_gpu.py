"""Int8 matrix products by 4-way dot-product instructions (GPU)."""

from __future__ import annotations

import numpy as np

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ir.place import FLAT
from ..codegen.epilogue import rows_epilogue
from ..kernel import Binding, Bindings, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from ..matmul.matmul_problem import MatmulProblem, MatmulSizes, sizes_of
from .dot4_common import PACK, WORD, TiledDot4, digest, dot_defines, tile_cycles, words


@register
class MatmulDot4(TiledDot4):
    """A work-item sums TM rows by TC blocks of four columns; SPLIT work-items split the terms."""

    op = "IntegerMatMul"
    problem = MatmulProblem
    space = {"TM": (2, 1, 4, 8), "TC": (1, 2), "NX": (32, 8, 16, 64), "MY": (1, 2, 4, 8), "SPLIT": (1, 2, 4, 8)}
    block_axes = ("TM", "TC")
    group_axes = ("NX", "MY")
    tiles = tuple(
        (tm, tc, nx, my)
        for tm, tc in ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2))
        for nx, my in ((32, 1), (32, 2), (32, 4), (32, 8), (8, 4), (16, 2))
    )

    def refuse(self, p: MatmulProblem) -> str | None:
        if not p.node.x.type.count or not p.node.input(1).type.count:
            return "the tensors hold no elements"
        return p.refusal()

    def bindings(self, p: MatmulProblem) -> Bindings:
        layouts = [None if v is None else FLAT for v in p.node.inputs]
        if _packs(p.node):
            layouts[1] = None
        return (Binding(tuple(layouts), (FLAT,)),)

    def cycles(self, node: Node, params: Params, device: DeviceInfo) -> float | None:
        p = sizes_of(node)
        tm, tc, nx, my = (params[k] for k in ("TM", "TC", "NX", "MY"))
        if p.m < tm * my > 1:
            return None
        tile = {"rows": tm, "columns": tc, "down": my, "across": nx, "split": params["SPLIT"]}
        loads = tm * ceil_div(32, nx) + tc * 8
        return tile_cycles(p.m * p.batches, ceil_div(p.n, PACK), ceil_div(p.k, WORD), tile, loads, device)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node = p.node
        s, y = p.sizes, node.y
        b, a_zero, b_zero = node.input(1), node.get(2), node.get(3)
        is_packed = _packs(node)
        epilogue = rows_epilogue(node, p.device)
        args: Args = {"a": node.x, "b": _packed(node, s) if is_packed else b, "y": y}
        start = _start(node, s) if is_packed else None
        if start is not None:
            args["start"], a_zero = start, None
        args |= {name: v for name, v in (("a_zero", a_zero), ("b_zero", b_zero)) if v is not None}
        args |= {**s.args(), **epilogue.args}
        defines = dot_defines(p.device, node.x.dtype, b.dtype) | dict(params)
        defines |= {"TRANS_A": s.trans_a, "TRANS_B": s.trans_b, "B_PACKED": is_packed, "A_ZERO": a_zero is not None}
        defines["HAS_START"] = start is not None
        defines |= {"B_ZERO": 0 if b_zero is None else 1 if b_zero.type.count == 1 else 2, "PACK": PACK}
        defines |= {"ALIGNED": s.k % WORD == 0 and not s.trans_a, "STORAGE": STORAGE[y.type.storage]}
        if is_packed and p.device.reads_texels(ceil_div(s.k, WORD) * ceil_div(s.n, PACK)):
            defines["TEXELS"] = 1
        nx, my, split = group = self.group_of(params)
        across = ceil_div(ceil_div(s.n, PACK), nx * params["TC"]) * nx
        grid = (across, ceil_div(s.m, my * params["TM"]) * my, s.batches * split)
        return [Launch("matmul_dot", args, grid, group, defines, epilogue.prelude)]


def _packs(node: Node) -> bool:
    """Whether b is one constant matrix, which is packed ahead of time."""
    return node.input(1).is_const and sizes_of(node).b_count == 1


def _packed(node: Node, p: MatmulSizes) -> Weight:
    """b as uint32[ceil(K / 4), column blocks, 4], four terms per word."""

    def pack(data: Array) -> Array:
        matrix = data.reshape(data.shape[-2:])
        held = words(matrix, 1 if p.trans_b else 0)  # columns, words
        padded = np.zeros((ceil_div(p.n, PACK) * PACK, held.shape[1]), np.uint32)
        padded[: p.n] = held
        return np.ascontiguousarray(padded.T)

    return Weight(node.input(1), f"matrix words {'nk' if p.trans_b else 'kn'}", pack)


def _start(node: Node, p: MatmulSizes) -> Weight | None:
    """Contribution of a constant zero point of a to each column's sum, if b and its zero points are constant too."""
    a_zero, b_zero = node.get(2), node.get(3)
    if a_zero is None or a_zero.data is None or (b_zero is not None and b_zero.data is None):
        return None
    zero = int(a_zero.data.reshape(()))

    def pack(data: Array) -> Array:
        sums = data.reshape(data.shape[-2:]).astype(np.int32).sum(1 if p.trans_b else 0)
        less = 0 if b_zero is None or b_zero.data is None else p.k * b_zero.data.astype(np.int32).reshape(-1)
        out: Array = np.zeros(ceil_div(p.n, PACK) * PACK, np.int32)
        out[: p.n] = -zero * (sums - less)
        return out

    return Weight(node.input(1), f"start of sums {digest(a_zero)} {digest(b_zero)} {'nk' if p.trans_b else 'kn'}", pack)
