"""Int8 matrix products on CPUs with VNNI: register tiles over panels of b."""

from __future__ import annotations

import numpy as np

from ...cost.cost_tables import IntegerPanels
from ...ir.graph import Node
from ...ir.place import FLAT
from ...ops.integer_conv_matmul import IntegerMatMul
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..kernel import Binding, Bindings, Kernel, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from ..matmul.matmul_problem import MatmulProblem, MatmulSizes
from ..quantized.pack_low_bit import VECTORS, panel_width
from ..quantized.quantized_matmul_cpu import GROUP, balanced_rows, tile_refusal, tile_rows
from .dot4_common import WORD, digest, words


def panels_refusal(p: MatmulProblem) -> str | None:
    """The reason why the product is not rows times one constant matrix on a VNNI CPU, or None."""
    node, s = p.node, p.sizes
    if not p.device.is_cpu or p.device.byte_dots != "fours":
        return "the device has no sums of four products of bytes in vectors"
    if not node.x.type.count or not node.input(1).type.count:
        return "the tensors hold no elements"
    if not node.input(1).is_const or s.b_count != 1:
        return "b is not one constant matrix, so it cannot be packed ahead of time"
    if s.trans_a or s.batch:
        return "a is stored by columns, or its rows are those of several matrices"
    zero = node.get(3)
    if zero is not None and zero.data is None:
        return "the zero points of b are not constant"
    return None


class PanelArgs:
    """Arguments of kernels that read b in panels: packed words, column sums, zero points."""

    def __init__(self, p: MatmulProblem) -> None:
        node, s, width = p.node, p.sizes, panel_width(p.device)
        a_zero, b_zero = node.get(2), node.get(3)
        form = f"byte panels{width}{'t' if s.trans_b else ''}"
        self.b = Weight(node.input(1), form, lambda data: _panels(data, s, width))
        self.column_sums = Weight(node.input(1), f"sums of {form}", lambda data: _column_sums(data, s, width))
        self.a_zero = None if a_zero is None or _is_zero(a_zero.data) else a_zero
        self.b_zero = None
        # Unsigned bytes are shifted by 128 to signed ones, and so is their zero point, 0 if they have none.
        if node.input(1).dtype.np == np.uint8 or not (b_zero is None or _is_zero(b_zero.data)):
            zero = None if b_zero is None or b_zero.data is None else b_zero.data
            shift = 128 if node.input(1).dtype.np == np.uint8 else 0
            form = f"zeros of {digest(b_zero)} {form}"
            self.b_zero = Weight(node.input(1), form, lambda data: _zeros(zero, shift, s, width))


@register
class MatmulVnni(Kernel):
    """MR rows by a panel of columns in registers."""

    op = "IntegerMatMul"
    problem = MatmulProblem
    space = {"MR": (6, 5, 4, 3, 2, 1)}

    def refuse(self, p: MatmulProblem) -> str | None:
        return panels_refusal(p) or p.refusal()

    def bindings(self, p: MatmulProblem) -> Bindings:
        return (panels_binding(p.node),)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return tile_refusal(p, params)

    def defaults(self, p: MatmulProblem) -> Params:
        return {"MR": tile_rows(p, IntegerPanels.of(p.device).load)}

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        s, c = p.sizes, IntegerPanels.of(p.device)
        rows = tile_rows(p, c.load)
        tiles = ceil_div(max(1, s.m), rows) * ceil_div(s.n, panel_width(p.device)) * VECTORS
        turns = tiles * (ceil_div(s.k, WORD) * (rows + c.load) + rows * c.finish)
        busy = turns * 2 * p.device.pack / (p.device.peak_flops * self.share(p.device))
        return max(busy, cost.bytes / p.device.bandwidth) + p.device.launch_s

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        held = PanelArgs(p)
        epilogue = rows_epilogue(node, p.device)
        panels = ceil_div(s.n, panel_width(p.device))
        rows = ceil_div(balanced_rows(s.m, panels, params["MR"], p.device.compute_units), params["MR"]) * params["MR"]
        args: Args = {"a": node.x, "b": held.b, "column_sums": held.column_sums, "y": node.y}
        args |= {"M": s.m, "N": s.n, "K": s.k, "rows": rows}
        args |= {name: v for name, v in (("a_zero", held.a_zero), ("b_zero", held.b_zero)) if v is not None}
        defines = {"STORAGE": STORAGE[node.y.type.storage], "PACK": p.device.pack, "NV": VECTORS, "DOTS": 2, **params}
        defines |= {"A_SIGNED": node.x.dtype.np == np.int8, "A_ZERO": held.a_zero is not None}
        defines["B_ZERO"] = held.b_zero is not None
        grid = (panels, ceil_div(s.m, rows), 1)
        return [Launch("integer_panel", {**args, **epilogue.args}, grid, GROUP, defines, epilogue.prelude)]


def panels_binding(node: Node) -> Binding:
    """b and its zero points are packed ahead of time; all else is row-major."""
    layouts = [None if v is None else FLAT for v in node.inputs]
    layouts[1] = None
    if node.get(IntegerMatMul.arity - 1) is not None:
        layouts[IntegerMatMul.arity - 1] = None
    return Binding(tuple(layouts), (FLAT,))


def _is_zero(data: Array | None) -> bool:
    return data is not None and not data.any()


def _signed(data: Array) -> Array:
    """Bytes as signed ones; unsigned ones minus 128."""
    return data if data.dtype == np.int8 else (data ^ 0x80).view(np.int8)


def _matrix(data: Array, s: MatmulSizes) -> Array:
    """The single matrix [N, K] of `data`, signed."""
    matrix = _signed(data.reshape(data.shape[-2:]))
    return matrix if s.trans_b else matrix.T


def _panels(data: Array, s: MatmulSizes, width: int) -> Array:
    """uint32[panels, ceil(K / 4), width]."""
    held = words(_matrix(data, s), 1)  # columns, words
    padded = np.zeros((ceil_div(s.n, width) * width, held.shape[1]), np.uint32)
    padded[: s.n] = held
    return np.ascontiguousarray(padded.reshape(-1, width, held.shape[1]).swapaxes(1, 2))


def _column_sums(data: Array, s: MatmulSizes, width: int) -> Array:
    out = np.zeros(ceil_div(s.n, width) * width, np.int32)
    out[: s.n] = _matrix(data, s).sum(1, dtype=np.int32)
    return out


def _zeros(zero: Array | None, shift: int, s: MatmulSizes, width: int) -> Array:
    out = np.zeros(ceil_div(s.n, width) * width, np.int32)
    out[: s.n] = (0 if zero is None else zero.reshape(-1).astype(np.int32)) - shift
    return out
