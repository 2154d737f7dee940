"""Matrix products."""

from __future__ import annotations

import math

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation
from .window import follow

WIDTHS = (1, 2, 3, 4, 5, 8, 11, 16, 17, 32, 33)


def scaled(b: Builder, shape: list[int], terms: int) -> str:
    return b.weight(shape, 1 / math.sqrt(max(1, terms)))


@operation("product", 2.5)
def matmul(b: Builder) -> None:
    d = b.draw
    x = b.real(where=lambda a: a.ndim >= 1 and a.size <= 20_000)
    shape = b[x].shape
    k = shape[-1]
    kind = d.between(0, 9)
    if kind < 6:
        y = scaled(b, [k, d.pick(WIDTHS)], k)
    elif kind == 6:
        y = scaled(b, [k], k)
    else:
        batch = [1 if d.chance(0.4) else n for n in shape[:-2]][d.between(0, max(0, len(shape) - 2)) :]
        y = b.operand([*batch, k, d.pick(WIDTHS)])
    follow(b, b.emit("MatMul", [x, y]))


@operation("product", 0.8)
def matmul_both(b: Builder) -> None:
    """A product of two tensors that the graph computes: x times its own transpose."""
    x = b.real(where=lambda a: a.ndim >= 2 and a.size <= 8000)
    n = b[x].ndim
    turned = b.emit("Transpose", [x], perm=[*range(n - 2), n - 1, n - 2])
    b.emit("MatMul", [x, turned] if b.draw.chance(0.5) else [turned, x])


@operation("product", 1.2)
def gemm(b: Builder) -> None:
    d, x = b.draw, b.real(2)
    trans_a, trans_b = d.between(0, 1), d.between(0, 1)
    m, k = b[x].shape[::-1] if trans_a else b[x].shape
    if not k:
        raise Rejected("onnxruntime forgets beta where there is nothing to multiply")
    n = d.pick(WIDTHS)
    inputs = [x, scaled(b, [n, k] if trans_b else [k, n], k)]
    if b.opset < 11 or d.chance(0.7):
        inputs.append(b.weight(d.pick([[n], [1], [m, n], [m, 1], [1, n], []])))
    attrs = {"alpha": d.pick([None, 0.5, 1.3]), "beta": d.pick([None, 0.5, 2.0])}
    follow(b, b.emit("Gemm", inputs, transA=trans_a or None, transB=trans_b or None, **attrs))


@operation("product", 0.6)
def einsum(b: Builder) -> None:
    if not b.has("Einsum"):
        raise Rejected("Einsum")
    d = b.draw
    texts = {
        2: ["ij,jk->ik", "ij,ik->jk", "ij->ji", "ij,ij->i", "ij->"],
        3: ["bij,bjk->bik", "bij,bkj->bik", "bij,jk->bik"],
    }
    texts |= {1: ["i,j->ij", "i,i->"], 4: ["bhid,bhjd->bhij", "abij->abji", "bchw,bkc->bkhw"]}
    rank = d.pick([1, 2, 2, 3, 3, 4])
    x = b.real(rank, lambda a: 0 < a.size <= 3000)  # of nothing onnxruntime's ends the process
    text = d.pick(texts[rank])
    terms = text.split("->")[0].split(",")
    sizes = dict(zip(terms[0], b[x].shape, strict=True))
    inputs = [x]
    for term in terms[1:]:
        inputs.append(b.operand([sizes.setdefault(c, d.between(1, 9)) for c in term]))
    b.emit("Einsum", inputs, equation=text)


@operation("product", 0.2)
def det(b: Builder) -> None:
    if not b.has("Det"):
        raise Rejected("Det")
    n = b.draw.between(1, 4)
    x = b.operand([*b.draw.shape(b.draw.between(0, 2), most=20), n, n])
    b.emit("Det", [b.emit("Add", [x, b.const((4 * np.eye(n)).astype(b.dtype), 0.0)])])  # far from singular


@operation("product", 0.4)
def two_layers(b: Builder) -> None:
    """Product, bias, activation, product."""
    x = b.real(where=lambda a: a.ndim >= 2 and 0 < a.size <= 8000)
    k, wide = b[x].shape[-1], b.draw.pick(WIDTHS)
    y = b.emit("Add", [b.emit("MatMul", [x, scaled(b, [k, wide], k)]), b.weight([wide])])
    y = b.emit(b.draw.pick(["Relu", "Tanh", "Sigmoid"]), [y])
    b.emit("MatMul", [y, scaled(b, [wide, k], wide)])
