"""Fuse a normalization of few rows into all products that read it (skinny matmul, decode)."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...expr.expression import Expr, In, Ref, Tmp
from ...ir.device.device_info import DeviceInfo
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
from ...ops.row_norm_matmul import RowNormMatMul, RowNormQuantizedMatMul
from ..rewrite_driver import Rule, Sweep, joined_origin


class _Rows(NamedTuple):
    """Normalized rows: the nodes that compute them, in order, and their scale and shift."""

    nodes: list[Node]
    scale: Value | None
    bias: Value | None


def fuse_norm_skinny_matmul(device: DeviceInfo, memory: Memory | None = Memory.BUFFER) -> Rule:
    """The rule for `device`; `memory` as in `find_options`.

    It matches layer or RMS normalization of up to FEW rows over the last axis, read only by products with constant
    float or quantized matrices. It is applied if all of them together become faster. Scale and bias, also from a
    following expression, become inputs of the products. Their matrices are unchanged, so that plans for other row
    counts share them.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, Normalize) or not _goes_by_rows(node):
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
        made = [_fused(found, r) for r in readers]
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


def _goes_by_rows(node: Node) -> bool:
    op, rank = node.as_(Normalize), len(node.x.shape)
    return op.kind in TRAILING and op.axis == rank - 1 and rank > 1 and node.epilogue is None


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
    if any(v is not None and not _varies_by_column(v) for v in (scale, bias)):
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


def _varies_by_column(v: Value) -> bool:
    return all(d == 1 for d in v.shape[:-1])


def _fused(rows: _Rows, node: Node) -> Node:
    norm, product = rows.nodes[0].as_(Normalize), node.op
    if isinstance(product, QuantizedMatMul):
        op: Op = RowNormQuantizedMatMul(**product.attributes(), kind=norm.kind, epsilon=norm.epsilon)
    else:
        op = RowNormMatMul(False, node.as_(MatMul).trans_b, norm.kind, norm.epsilon)
    held = [node.get(i) for i in range(1, product.arity)]
    inputs = [rows.nodes[0].x, *held, rows.scale, rows.bias, *node.inputs[product.arity :]]
    return node.with_(op=op, inputs=inputs, origin=joined_origin(*rows.nodes, node))
