"""Caches of decoders, and the attention that reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx import helper

from ..builder import Builder, Rejected
from ..registry import operation

MS = "com.microsoft"


def single(b: Builder) -> np.dtype[Any]:
    """The graph's float type, if attention is computed in it."""
    if b.dtype.itemsize == 8 or b.special:
        raise Rejected("attention of doubles, or of what is not finite")
    return b.dtype


def fed(b: Builder, shape: list[int]) -> str:
    """An input, as caches are: its sizes may be open."""
    return b.input(b.draw.array(shape, b.dtype))


def angles(b: Builder, rows: int, width: int) -> list[str]:
    """Cosines and sines of positions."""
    found = b.draw.array([rows, width], "f4", 0, 3)
    return [b.const(f(found).astype(b.dtype), 0.1) for f in (np.cos, np.sin)]


@operation("decoder", 1)
def attention_with_a_past(b: Builder) -> None:
    """Attention of opset 23 or 24, whose keys and values are put behind those of before."""
    single(b)
    if not b.has("Attention"):
        raise Rejected("Attention")
    d = b.draw
    batch, heads, group = d.between(1, 2), d.pick([1, 2, 3]), d.pick([1, 1, 2])
    rows, past, width = d.pick([1, 1, 3, 7]), d.pick([0, 1, 4, 16]), d.pick([2, 4, 8])
    value = width if d.chance(0.8) else width + 1
    keys, sizes = past + rows, {}
    if d.chance(0.5):
        q = b.operand([batch, heads * group, rows, width])
        k, v = b.operand([batch, heads, rows, width]), b.operand([batch, heads, rows, value])
    else:
        q = b.operand([batch, rows, heads * group * width])
        k, v = b.operand([batch, rows, heads * width]), b.operand([batch, rows, heads * value])
        sizes = {"q_num_heads": heads * group, "kv_num_heads": heads}
    mask = ""
    if d.chance(0.5):
        if d.chance(0.5):
            mask = b.operand(d.pick([[rows, keys], [1, 1, rows, keys], [batch, 1, 1, keys]]))
        else:
            seen = d.array([rows, keys], "?")
            seen[:, 0] = True
            mask = b.const(seen)
    inputs = [q, k, v, mask, fed(b, [batch, heads, past, width]), fed(b, [batch, heads, past, value])]
    attrs = {"is_causal": d.pick([None, 1]), "scale": d.pick([None, 0.3]), "softcap": d.pick([None, None, 2.0])}
    if d.chance(0.2):
        attrs["qk_matmul_output_mode"] = d.between(0, 3)
    b.emit_all("Attention", inputs, 4 if "qk_matmul_output_mode" in attrs else 3, **attrs, **sizes)


@operation("decoder", 0.6)
def attention_of_lengths(b: Builder) -> None:
    """Attention of opset 24 over a cache of a fixed size, into which TensorScatter has written in most."""
    single(b)
    if not b.has("TensorScatter"):
        raise Rejected("TensorScatter")
    d = b.draw
    batch, heads, rows, most, width = (
        d.between(1, 3),
        d.pick([1, 2]),
        d.pick([1, 1, 4]),
        d.pick([5, 16]),
        d.pick([2, 8]),
    )
    first = d.array([batch], "i8", 0, most - rows)
    caches = [fed(b, [batch, heads, most, width]) for _ in range(2)]
    if d.chance(0.8):
        start = b.const(first, 1.0)
        caches = [b.emit("TensorScatter", [c, b.operand([batch, heads, rows, width]), start]) for c in caches]
    lengths = b.const(first + rows, 1.0)
    q = b.operand([batch, heads * d.pick([1, 2]), rows, width])
    b.emit("Attention", [q, *caches, "", "", "", lengths], is_causal=d.pick([None, 1]))


@operation("decoder", 0.6)
def written_into(b: Builder) -> None:
    """TensorScatter, along any axis, around the end in some."""
    if not b.has("TensorScatter"):
        raise Rejected("TensorScatter")
    d = b.draw
    x = b.tensor([b.dtype, "i4"], where=lambda a: a.ndim >= 2 and 0 < a.size <= 3000)
    shape, axis = list(b[x].shape), d.between(1, b[x].ndim - 1)
    shape[axis] = d.between(1, shape[axis])
    circular = d.chance(0.3)
    room = b[x].shape[axis] - (1 if circular else shape[axis])
    inputs = [x, b.operand(shape, b[x].dtype)]
    if d.chance(0.8):
        inputs.append(b.const(d.array([shape[0]], "i8", 0, room), 0.5))
    mode = "circular" if circular else d.pick([None, "linear"])
    b.emit("TensorScatter", inputs, axis=axis if d.chance(0.5) else axis - b[x].ndim, mode=mode)


@operation("decoder", 1)
def grouped_queries(b: Builder) -> None:
    """GroupQueryAttention: a prompt, or tokens behind a cache, which may have room and end earlier in some rows."""
    single(b)
    d = b.draw
    batch, heads, group, width = d.between(1, 2), d.pick([1, 2]), d.pick([1, 2, 4]), d.pick([8, 16, 32])
    past = d.pick([0, 0, 3, 9])
    rows = 1 if past and d.chance(0.7) else d.pick([1, 4, 7])
    batch = 1 if past and rows > 1 else batch
    total, hidden = past + rows, heads * width
    room = past + d.pick([0, 0, rows + 3])
    q = [b.operand([batch, rows, n]) for n in (hidden * group, hidden, hidden)]
    if d.chance(0.3):
        q = [b.operand([batch, rows, hidden * (group + 2)]), "", ""]
    caches = [fed(b, [batch, heads, room, width]) for _ in range(2)] if past or d.chance(0.5) else ["", ""]
    ends = np.full(batch, total)
    if past and d.chance(0.5):
        ends[1:] = d.between(2, total)
    inputs = [*q, *caches, b.const((ends - 1).astype("i4"), 0.7), b.const(np.array(total, "i4"), 0.3)]
    attrs: dict[str, Any] = {"num_heads": heads * group, "kv_num_heads": heads}
    if d.chance(0.5):
        inputs += angles(b, max(total, room) + d.pick([0, 5]), width // 2)
        attrs |= {"do_rotary": 1, "rotary_interleaved": d.between(0, 1)}
    if d.chance(0.2):
        attrs["local_window_size"] = d.pick([1, 2, 5])
    if d.chance(0.2):
        attrs["softcap"] = 2.0
    if d.chance(0.2):
        attrs["scale"] = 0.3
    count, held = ends, max(room, total)  # rows of the caches that say something, of those that there are
    window = d.pick([1, 2, 5])
    if window <= room and d.chance(0.5):
        attrs |= {"local_window_size": window, "sliding_window_cache": 1}
        step, held = room - window + 1, room
        count = ends - step * np.maximum(-((room - ends) // step), 0)
    names = [b.name("v") for _ in range(5)]
    y, *present = names[:3]
    node = helper.make_node(
        "GroupQueryAttention", inputs, names[:3], name=f"GroupQueryAttention_{y}", domain=MS, **attrs
    )
    if (count == held).all():
        b.add([node], names[:3])
        return
    # What lies behind the end of a row says nothing.
    seen = b.const((np.arange(held) < count[:, None])[:, None, :, None], 0.0)
    nothing = b.const(np.zeros([], b.dtype), 0.0)
    pairs = zip(present, names[3:], strict=True)
    cut = [helper.make_node("Where", [seen, p, nothing], [o], name=f"Where_{o}") for p, o in pairs]
    b.add([node, *cut], [y, *names[3:]])


@operation("decoder", 0.7)
def many_heads(b: Builder) -> None:
    """MultiHeadAttention with biases, masks and a past."""
    single(b)
    d = b.draw
    batch, heads, width, rows = d.between(1, 2), d.pick([1, 2, 3]), d.pick([2, 4, 8]), d.pick([1, 3, 7])
    keys, past = d.pick([rows, rows, 5]), d.pick([0, 0, 0, 4])
    if past:
        keys = rows
    hidden, total = heads * width, past + keys
    inputs = [b.operand([batch, rows, hidden]), b.operand([batch, keys, hidden]), b.operand([batch, keys, hidden])]
    inputs.append(b.weight([3 * hidden]) if d.chance(0.4) else "")
    if d.chance(0.3):
        mask = d.array([batch, total], "i4", 0, 1)
        mask[:, 0] = 1
        inputs.append(b.const(mask, 0.5))
    else:
        inputs.append("")
    inputs.append(b.operand([d.pick([1, batch]), d.pick([1, heads]), rows, total]) if d.chance(0.3) else "")
    if past:
        inputs += [fed(b, [batch, heads, past, width]) for _ in range(2)]
    attrs = {"num_heads": heads, "scale": d.pick([None, 0.3])}
    if keys == rows:  # of other keys it is not said which are later ones
        attrs["unidirectional"] = d.pick([None, 0, 1])
    b.emit_all("MultiHeadAttention", inputs, 3 if past else 1, domain=MS, **attrs)


@operation("decoder", 0.5)
def turned_positions(b: Builder) -> None:
    """RotaryEmbedding of com.microsoft, or of opset 23 for packed heads and a part of their features."""
    single(b)
    d = b.draw
    n, heads, rows, width = d.between(1, 2), d.between(1, 3), d.between(1, 7), d.pick([4, 8, 16])
    packed, part = d.chance(0.5), d.pick([width, width, width // 2])
    x = b.operand([n, rows, heads * width] if packed else [n, heads, rows, width])
    table = angles(b, rows + 3, part // 2)
    attrs: dict[str, Any] = {"interleaved": d.pick([None, 0, 1])}
    if packed or part < width:
        attrs["num_heads"] = heads
    if part < width:
        attrs["rotary_embedding_dim"] = part
    if d.chance(0.5) and b.has("RotaryEmbedding"):
        b.emit("RotaryEmbedding", [x, *table, b.const(d.array([n, rows], "i8", 0, rows + 2), 0.3)], **attrs)
        return
    one = d.chance(0.4)
    positions = d.array([1] if one else [n, rows], "i8", 0, 3 if one else rows + 2)
    b.emit("RotaryEmbedding", [x, b.const(positions, 0.3), *table], domain=MS, **attrs)


@operation("decoder", 0.8)
def growing_cache(b: Builder) -> None:
    """A Concat of the past and what is new, whose result is read and given back, as exporters write decoders."""
    single(b)
    d = b.draw
    batch, heads, rows, past, width = d.between(1, 2), d.pick([1, 2]), d.pick([1, 1, 4]), d.pick([0, 1, 6]), 4
    x = b.operand([batch, rows, heads * width])
    parts = []
    for _ in range(3):
        y = b.emit("MatMul", [x, b.weight([heads * width, heads * width], 0.4)])
        y = b.emit("Reshape", [y, b.ints([0, 0, heads, width])])
        parts.append(b.emit("Transpose", [y], perm=[0, 2, 1, 3]))
    q = parts[0]
    k, v = (b.emit("Concat", [fed(b, [batch, heads, past, width]), p], axis=d.pick([2, -2])) for p in parts[1:])
    scores = b.emit("MatMul", [q, b.emit("Transpose", [k], perm=[0, 1, 3, 2])])
    if d.chance(0.5):
        scores = b.emit("Add", [scores, b.operand([batch, 1, rows, past + rows])])
    shares = b.emit("Softmax", [scores], axis=-1 if b.opset >= 11 else 3)
    y = b.emit("Transpose", [b.emit("MatMul", [shares, v])], perm=[0, 2, 1, 3])
    b.emit("Reshape", [y, b.ints([0, 0, heads * width])])
