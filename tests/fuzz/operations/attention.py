"""Attention, as one operator and written out."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation


@operation("attention", 0.6)
def attention(b: Builder) -> None:
    if not b.has("Attention"):
        raise Rejected("Attention")
    d = b.draw
    batch, heads, group = d.between(1, 2), d.pick([1, 2, 3]), d.pick([1, 1, 2])
    rows, keys, width = d.pick([1, 3, 7, 16]), d.pick([1, 4, 7, 17]), d.pick([2, 4, 8, 16])
    causal = d.pick([None, None, 0, 1])
    if d.chance(0.5):
        q = b.operand([batch, heads * group, rows, width])
        k, v = b.operand([batch, heads, keys, width]), b.operand([batch, heads, keys, width])
        sizes = {}
    else:
        q = b.operand([batch, rows, heads * group * width])
        k, v = b.operand([batch, keys, heads * width]), b.operand([batch, keys, heads * width])
        sizes = {"q_num_heads": heads * group, "kv_num_heads": heads}
    inputs = [q, k, v]
    if d.chance(0.4):
        if d.chance(0.5):
            inputs.append(b.operand(d.pick([[rows, keys], [1, 1, rows, keys]])))
        else:
            mask = d.array([rows, keys], "?")
            mask[:, 0] = True
            inputs.append(b.const(mask))
    attrs = {"is_causal": causal, "scale": d.pick([None, 0.3]), "softcap": d.pick([None, None, 2.0])}
    b.emit("Attention", inputs, **attrs, **sizes)


@operation("attention", 1)
def attention_written_out(b: Builder) -> None:
    """Projections, heads, scores, mask, softmax, mixing: as exporters write it."""
    d = b.draw
    x = b.real(3, lambda a: 0 < a.size <= 3000 and a.shape[2] % 2 == 0, finite=True)
    n, rows, width = b[x].shape
    heads = d.pick([h for h in (1, 2, 4) if width % h == 0])
    t = b.dtype.type

    def project(perm: list[int]) -> str:
        y = b.emit("MatMul", [x, b.weight([width, width], width**-0.5)])
        if d.chance(0.4):
            y = b.emit("Add", [y, b.weight([width])])
        y = b.emit("Reshape", [y, b.ints([n if d.chance(0.5) else 0, -1, heads, width // heads], 0.0)])
        return b.emit("Transpose", [y], perm=perm)

    q, k, v = project([0, 2, 1, 3]), project([0, 2, 3, 1]), project([0, 2, 1, 3])
    factor = b.const(t((width / heads) ** -0.5), 0.0)
    early = d.chance(0.3)
    if early:
        q = b.emit("Mul", [q, factor])
    scores = b.emit("MatMul", [q, k])
    if not early:
        scores = b.emit("Mul", [scores, factor])
    if d.chance(0.4):
        hidden = d.rng.random([rows, rows]) < 0.3
        if b.special and d.chance(0.6):
            hidden[d.between(0, rows - 1)] = True  # a query that sees nothing
        mask = np.where(hidden, -np.inf if b.special else -100.0, 0.0)
        scores = b.emit("Add", [scores, b.const(mask.astype(b.dtype))])
    shares = b.emit("Softmax", [scores], axis=-1 if b.opset >= 11 else 3)
    if b.opset >= 9 and d.chance(0.3):  # as PyTorch's exporters do
        shares = b.emit("Where", [b.emit("IsNaN", [shares]), b.const(t(0), 0.0), shares])
    y = b.emit("Transpose", [b.emit("MatMul", [shares, v])], perm=[0, 2, 1, 3])
    y = b.emit("Reshape", [y, b.ints([n, rows, width], 0.0)])
    if d.chance(0.6):
        b.emit("Add", [b.emit("MatMul", [y, b.weight([width, width], width**-0.5)]), x])


@operation("attention", 0.3)
def rotary(b: Builder) -> None:
    if not b.has("RotaryEmbedding"):
        raise Rejected("RotaryEmbedding")
    d = b.draw
    n, heads, rows, width = d.between(1, 2), d.between(1, 3), d.between(1, 7), d.pick([2, 4, 8])
    x = b.operand([n, heads, rows, width])
    angles = d.array([rows, width // 2], "f4", 0, 3)
    inputs = [x, b.const(np.cos(angles).astype(b.dtype)), b.const(np.sin(angles).astype(b.dtype))]
    inputs.append(b.const(d.array([n, rows], "i8", 0, rows - 1), 0.3))
    b.emit("RotaryEmbedding", inputs, interleaved=d.pick([None, 0, 1]))
