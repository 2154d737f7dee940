"""Fuse layer normalization into the product that reads it, if one kernel is faster than two."""

from __future__ import annotations

import numpy as np

from ...expr.expression import Expr
from ...expr.parse import parse_expr
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.place import Memory
from ...layout.kernel_candidates import find_options, least_seconds
from ...ops.data_movement import Reshape
from ...ops.matmul import MatMul
from ...ops.normalize import Normalize
from ...ops.row_norm_matmul import NormalizedMatMul
from ..rewrite_driver import Rule, Sweep, joined_origin
from .fold_affine import constant_like

_LOST = 1e-3  # largest loss as a share of a column's norm; rounding to normal halves loses 2 to 5e-4


def fuse_norm_matmul(device: DeviceInfo, memory: Memory | None = Memory.BUFFER) -> Rule:
    """The rule for `device`; `memory` as in `find_options`.

    It matches layer normalization over the last axis whose only reader is a product with a constant. The scale is
    folded into the constant; the bias times the constant is added by the epilogue. A Reshape that keeps the rows may be
    between them.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, MatMul) or node.op.trans_a or node.epilogue is not None:
            return None
        between, norm = _source(node, sweep)
        if norm is None or not _is_row_norm(norm):
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
        return Patch.replacing(node, *added, made, also=[norm] if between is None else [norm, between])

    return rule


def _fits_half(matrix: Value) -> bool:
    """Whether half storage changes each column by little more than the rounding of normal numbers."""
    wide = np.asarray(matrix.data, np.float64)
    with np.errstate(over="ignore"):
        lost = np.linalg.norm(wide.astype(np.float16) - wide, axis=0)
    return bool((lost <= _LOST * np.linalg.norm(wide, axis=0)).all())


def _source(node: Node, sweep: Sweep) -> tuple[Node | None, Node | None]:
    """(Reshape between or None, the node that computes rows that only `node` reads or None)."""
    between: Node | None = None
    reader, v = node, node.x
    maker = v.producer
    if maker is not None and isinstance(maker.op, Reshape) and maker.x.shape[-1:] == v.shape[-1:]:
        if sweep.only_use(v) is not node:
            return None, None
        between, reader, v = maker, maker, maker.x
    return between, v.producer if sweep.only_use(v) is reader else None


def _is_row_norm(node: Node) -> bool:
    if not isinstance(node.op, Normalize) or node.op.kind != "layer" or node.epilogue is not None:
        return False
    return node.op.axis == len(node.x.shape) - 1


def _fused(norm: Node, node: Node, between: Node | None) -> tuple[Node, list[Node]]:
    """(the product of normalized rows, its helper nodes)."""
    x, w = norm.x, node.input(1)
    added: list[Node] = []
    if between is not None:
        moved = between.with_(inputs=[x, *between.inputs[1:]])
        moved.y.type = moved.y.type.with_place(x.type.place)
        added.append(moved)
        x = moved.y
    matrix = np.asarray(w.data, np.float64)
    matrix = matrix.T if node.as_(MatMul).trans_b else matrix
    op = NormalizedMatMul(trans_a=False, trans_b=False, epsilon=float(norm.as_(Normalize).epsilon))
    epilogue: Expr | None = None
    scale, bias = (None if v is None else _wide(v, matrix.shape[0]) for v in (norm.get(1), norm.get(2)))
    inputs: list[Value | None] = [x, constant_like(w, matrix if scale is None else matrix * scale[:, None])]
    if bias is not None:
        inputs.append(constant_like(w, bias @ matrix))
        epilogue = parse_expr("add($0, $1)", [node.y.dtype] * 2)
    return node.with_(op=op, inputs=inputs, epilogue=epilogue, origin=joined_origin(norm, node)), added


def _wide(v: Value, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.broadcast_to(np.asarray(v.array, np.float64).reshape(-1), (count,))
