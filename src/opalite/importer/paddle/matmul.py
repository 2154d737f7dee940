"""Importers of products."""

from __future__ import annotations

import math
from typing import Any

from ...errors import ShapeError
from ...ir import Value
from ..onnx.activation import gelu_exact
from .common import PaddleNode, paddle_op


@paddle_op("matmul", "matmul_v2", "bmm", "mm", "mv", operands="x y vec")
def matmul(n: PaddleNode) -> Value:
    """Import a matrix product, with operands transposed on request and scaled by alpha."""
    x, y = n.value("x", "input"), n.value("y", "vec", "mat2")
    turns = [n.is_set(f"transpose_{a}", f"trans_{a}", f"transpose_{a.upper()}") for a in ("x", "y")]
    out = n.matmul(x, y, turns[0] and len(x.shape) > 1, turns[1] and len(y.shape) > 1)
    alpha = float(n.number("alpha", default=1.0))
    return out if alpha == 1 else n.elementwise(lambda v: v * alpha, out)


@paddle_op("mul", operands="x y")
def mul(n: PaddleNode) -> Value:
    """Import mul: a product of matrices that join leading axes with each other, and the rest."""
    x, y = n.value("x"), n.value("y")
    return _flat_product(n, x, y, n.number("x_num_col_dims", default=1), n.number("y_num_col_dims", default=1))


def _flat_product(n: PaddleNode, x: Value, y: Value, rows: Any, columns: Any) -> Value:
    rows, columns = int(rows), int(columns)
    rows += len(x.shape) if rows < 0 else 0
    if not 0 < rows < len(x.shape) or not 0 < columns < len(y.shape):
        raise ShapeError(f"{n.label} joins axes of {x.type} and {y.type} at {rows} and {columns}")
    right = n.reshape(y, (math.prod(y.shape[:columns]), math.prod(y.shape[columns:])))
    # Leading axes stay: they may be open.
    left = n.reshape(x, (*x.shape[:rows], math.prod(x.shape[rows:])))
    return n.reshape(n.matmul(left, right), (*x.shape[:rows], *y.shape[columns:]))


@paddle_op("fc", operands="input w bias")
def fc(n: PaddleNode) -> Value:
    """Import fc: a product, bias and activation that Paddle's own passes have joined."""
    out = n.plus(
        _flat_product(n, n.value("input"), n.value("w"), n.number("in_num_col_dims", default=1), 1), n.maybe("bias")
    )
    kind = n.text("activation_type")
    if kind not in ("", "relu", "gelu", "tanh", "sigmoid"):
        raise n.refuse(f"has the activation '{kind}'; relu, gelu, tanh and sigmoid are known")
    if kind == "relu":
        return n.elementwise(lambda v: v.call("max", 0), out)
    if kind == "gelu":
        return n.elementwise(gelu_exact, out)
    return n.unary(kind, out) if kind else out


@paddle_op("addmm", "baddbmm", operands="input x y")
def addmm(n: PaddleNode) -> Value:
    """Import addmm: beta input + alpha x y."""
    alpha, beta = (float(n.number(name.capitalize(), name, default=1.0)) for name in ("alpha", "beta"))
    product = n.matmul(n.value("x"), n.value("y"))
    return n.elementwise(lambda p, i: p * alpha + i * beta, product, n.value("input"))


@paddle_op("dot", operands="x y")
def dot(n: PaddleNode) -> Value:
    """Import dot: sum of products over the last axis."""
    x = n.value("x")
    return n.reduce(n.elementwise(lambda a, b: a * b, x, n.value("y")), "sum", [len(x.shape) - 1], keepdims=False)


@paddle_op("einsum", operands="x", outputs="out")
def einsum(n: PaddleNode) -> Value:
    """Import einsum: any equation."""
    return n.emit("Einsum", n.values("x", "operands"), equation=n.text("equation"))


@paddle_op("bilinear", "bilinear_tensor_product", operands="x y weight bias")
def bilinear(n: PaddleNode) -> Value:
    """Import bilinear: y[b, o] = x[b] W[o] y[b] + bias[o]."""
    x, y, w = n.value("x"), n.value("y"), n.value("weight")
    out = n.emit("Einsum", [x, w, y], equation="bi,oij,bj->bo")
    return n.plus(out, n.maybe("bias"))


@paddle_op("cross", operands="x y")
def cross(n: PaddleNode) -> Value:
    """Import cross: the product of vectors of three along one axis, by default the first of that size."""
    x, y = n.value("x"), n.value("y")
    first = next((i for i, d in enumerate(x.shape) if d == 3), 0)
    given = int(n.number("axis", "dim", default=9))
    axis = first if given == 9 else given % len(x.shape)
    if x.shape[axis] != 3:
        raise ShapeError(f"{n.label} needs vectors of three along axis {axis}, got {x.type}")
    a, b = n.split_axis(x, axis, (1, 1, 1)), n.split_axis(y, axis, (1, 1, 1))
    parts = [
        n.elementwise(lambda p, q, r, s: p * q - r * s, a[i], b[j], a[j], b[i]) for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return n.concat(parts, axis)
