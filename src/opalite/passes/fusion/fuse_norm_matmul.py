"""Fuse a normalization into the products that read it, if that is faster.

Layer normalization is fused into one product; of few rows (skinny matmul, decode), also RMS normalization into several.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...expr.expression import Expr, In, Ref, Tmp
from ...expr.parse import parse_expr
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.growable_tensor import FEW
from ...ir.patch import Patch
from ...ir.place import Memory
from ...ir.symbols import always_equal, hint_of
from ...layout.kernel_candidates import find_options, least_seconds
from ...ops.elementwise import Elementwise
from ...ops.matmul import MatMul
from ...ops.normalize import TRAILING, Normalize
from ...ops.operator import Op
from ...ops.quantized_matmul import QuantizedMatMul
from ...ops.row_norm_matmul import NormalizedMatMul, RowNormMatMul, RowNormQuantizedMatMul
from ..rewrite_driver import Rule, Sweep, joined_origin, maker_of
from .fold_into_conv import constant_like

_LOST = 1e-3  # largest loss as a share of a column's norm; rounding to normal halves loses 2 to 5e-4


def fuse_norm_matmul(device: DeviceInfo, memory: Memory | None = Memory.BUFFER) -> Rule:
    """Rule: layer normalization whose only reader is a product with a constant becomes one node with it.

    The normalization is over the last axis. The scale is folded into the constant; the bias times the constant is added
    by the epilogue. A Reshape that keeps the rows may be between the two nodes. memory: as in `find_options`.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, MatMul) or node.op.trans_a or node.epilogue is not None:
            return None
        norm, between = maker_of(node.x, node, sweep)
        if norm is None or not _is_row_norm(norm, ("layer",)) or norm.y.shape[-1:] != node.x.shape[-1:]:
            return None
        w, parameters = node.input(1), (norm.get(1), norm.get(2))
        if not w.is_const or len(w.shape) != 2 or any(v is not None and not v.is_const for v in parameters):
            return "the matrix, scale and bias must be constants"
        if norm.precision is not node.precision:
            return f"the rows are computed in {norm.precision.value}, the product in {node.precision.value}"
        made, added = _fused(norm, node, between)
        if made.y.type.storage is DType.FLOAT16 and not _fits_half(made.input(1)):
            return "scale times matrix loses precision in half storage"
        after, refusals = find_options(made, device, memory)
        if not after:
            return next(iter(refusals.values()), "no kernel fuses normalization and product")
        apart = sum(least_seconds(n, device, memory) for n in (norm, node))
        if after[0].seconds >= apart:
            return f"estimated {apart * 1e6:.1f} us apart, {after[0].seconds * 1e6:.1f} us fused"
        return Patch.replacing(node, *added, made, also=[norm, *between])

    return rule


def _fits_half(matrix: Value) -> bool:
    """Whether half storage changes each column by little more than the rounding of normal numbers."""
    wide = np.asarray(matrix.data, np.float64)
    with np.errstate(over="ignore"):
        lost = np.linalg.norm(wide.astype(np.float16) - wide, axis=0)
    return bool((lost <= _LOST * np.linalg.norm(wide, axis=0)).all())


def _is_row_norm(node: Node, kinds: tuple[str, ...]) -> bool:
    if not isinstance(node.op, Normalize) or node.op.kind not in kinds or node.epilogue is not None:
        return False
    return node.op.axis == len(node.x.shape) - 1


def _fused(norm: Node, node: Node, between: list[Node]) -> tuple[Node, list[Node]]:
    """(the product of normalized rows, its helper nodes)."""
    x, w = norm.x, node.input(1)
    added: list[Node] = []
    for view in between:
        moved = view.with_(inputs=[x, *view.inputs[1:]])
        moved.y.type = moved.y.type.with_place(x.type.place)
        added.append(moved)
        x = moved.y
    matrix = np.asarray(w.data, np.float64)
    matrix = matrix.T if node.as_(MatMul).trans_b else matrix
    op = NormalizedMatMul(trans_a=False, trans_b=False, epsilon=float(norm.as_(Normalize).epsilon))
    epilogue: Expr | None = None
    rows = [None if v is None else v.array.astype(np.float64).reshape(-1) for v in (norm.get(1), norm.get(2))]
    scale, bias = (None if row is None else np.broadcast_to(row, matrix.shape[:1]) for row in rows)
    inputs: list[Value | None] = [x, constant_like(w, matrix if scale is None else matrix * scale[:, None])]
    if bias is not None:
        inputs.append(constant_like(w, bias @ matrix))
        epilogue = parse_expr("add($0, $1)", [node.y.dtype] * 2)
    return node.with_(op=op, inputs=inputs, epilogue=epilogue, origin=joined_origin(norm, node)), added


class _Rows(NamedTuple):
    """Normalized rows: the nodes that compute them, in order, and their scale and shift."""

    nodes: list[Node]
    scale: Value | None
    bias: Value | None


def fuse_norm_skinny_matmul(device: DeviceInfo, memory: Memory | None = Memory.BUFFER) -> Rule:
    """Rule: products with constant matrices normalize their few rows themselves, if they become faster together.

    The rows are up to FEW, layer or RMS normalized over the last axis, and read only by products with constant float or
    quantized matrices. memory: as in `find_options`. Scale and bias, also
    from a following expression, become inputs of the products. The products' matrices are unchanged, so that plans for
    other row counts share these matrices.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not _is_row_norm(node, TRAILING) or len(node.x.shape) < 2:
            return None
        if (rows := hint_of(math.prod(node.x.shape[:-1]))) > FEW:
            return f"{rows} rows are more than {FEW}"
        found = _with_parameters(node, sweep)
        normal = found.nodes[-1].y
        readers = sweep.uses.get(normal, ())
        if normal in sweep.exposed or not readers or not all(_is_product_of(r, normal) for r in readers):
            return "the rows have other readers than products with constants"
        if any(v is not None and not v.is_const for v in (found.scale, found.bias)):
            return "scale and bias must be constants"
        if any(n.precision is not node.precision for n in (*found.nodes, *readers)):
            return f"the rows are computed in {node.precision.value}, their readers are not"
        made = [_fused_skinny(found, r) for r in readers]
        together = 0.0
        for m in made:
            options, refusals = find_options(m, device, memory)
            if not options:
                return next(iter(refusals.values()), "no kernel fuses normalization and product")
            together += options[0].seconds
        # A following scale and shift would be the normalization's epilogue, at no cost.
        apart = sum(least_seconds(n, device, memory) for n in (node, *readers))
        if together >= apart:
            return f"estimated {apart * 1e6:.1f} us apart, {together * 1e6:.1f} us fused"
        return Patch([*found.nodes, *readers], made, {r.y: m.y for r, m in zip(readers, made, strict=True)})

    return rule


def _is_product_of(node: Node, rows: Value) -> bool:
    if not isinstance(node.op, MatMul | QuantizedMatMul) or isinstance(node.op, RowNormQuantizedMatMul):
        return False
    if node.op.trans_a or rows in node.inputs[1:]:
        return False
    held = node.inputs[1 : node.op.arity]
    return len(node.input(1).shape) == 2 and all(v is None or v.is_const for v in held)


def _with_parameters(norm: Node, sweep: Sweep) -> _Rows:
    """The rows of `norm`, with scale and bias from a following expression if it does nothing else."""
    alone = _Rows([norm], norm.get(1), norm.get(2))
    reader = sweep.only_use(norm.y)
    if reader is None or not isinstance(reader.op, Elementwise) or not always_equal(reader.y.shape, norm.y.shape):
        return alone
    given = _affine(reader.op.expr, reader.inputs.index(norm.y))
    if given is None:
        return alone
    scale, bias = (None if i is None else reader.input(i) for i in given)
    if any(d != 1 for v in (scale, bias) if v is not None for d in v.shape[:-1]):
        return alone
    if alone.bias is not None or None not in (scale, alone.scale):  # scaled or shifted twice
        return alone
    return _Rows([norm, reader], alone.scale if scale is None else scale, bias)


def _affine(expr: Expr, rows: int) -> tuple[int | None, int | None] | None:
    """Operand numbers of the scale and shift in `expr`, if it only scales and shifts operand `rows`."""
    value: Ref = In(rows)
    found: dict[str, int] = {}
    for i, instr in enumerate(expr.instrs):
        others = [a for a in instr.args if a != value]
        if instr.fn not in ("mul", "add") or instr.fn in found or "add" in found or len(others) != 1:
            return None
        (other,) = others
        if not isinstance(other, In) or other.i == rows:
            return None
        found[instr.fn] = other.i
        value = Tmp(i)
    return (found.get("mul"), found.get("add")) if found else None


def _fused_skinny(rows: _Rows, node: Node) -> Node:
    norm, product = rows.nodes[0].as_(Normalize), node.op
    if isinstance(product, QuantizedMatMul):
        op: Op = RowNormQuantizedMatMul(**product.attributes(), kind=norm.kind, epsilon=norm.epsilon)
    else:
        op = RowNormMatMul(False, node.as_(MatMul).trans_b, norm.kind, norm.epsilon)
    held = [node.get(i) for i in range(1, product.arity)]
    inputs = [rows.nodes[0].x, *held, rows.scale, rows.bias, *node.inputs[product.arity :]]
    return node.with_(op=op, inputs=inputs, origin=joined_origin(*rows.nodes, node))
