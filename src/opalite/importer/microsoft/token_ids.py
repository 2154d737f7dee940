"""Operators of domain com.microsoft on token ids: hashes, repeated n-grams, speculative decoding."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnsupportedOpError
from ...expr.trace_function import Sym, where
from ...ir import DType, TensorType, Value
from ...ops.gather import GatherElements
from ...ops.scatter import ScatterElements
from ..walk.node_context import NodeContext, Result, onnx_op
from .unfuse import MS, refuse


@onnx_op("NGramRepeatBlock", domain=MS)
def ngram_repeat_block(ctx: NodeContext) -> Value:
    """Import NGramRepeatBlock: scores[B,V], with -inf for tokens that repeat an n-gram of ids[B,L]."""
    ids, scores, n = ctx.input(0), ctx.input(1), ctx.attr("ngram_size", 0)
    batch, length = ids.shape
    places = length - n + 1
    if n < 1 or places <= 0:
        return scores

    def repeats(*pairs: Sym) -> Sym:
        """Whether the tokens at a position equal the last ones."""
        found = pairs[0].eq(pairs[1])
        for a, b in zip(pairs[2::2], pairs[3::2], strict=True):
            found = found.call("and", a.eq(b))
        return found

    operands: list[Value] = []
    for i in range(n - 1):
        start = length - (n - 1) + i
        operands += [ctx.slice_axis(ids, 1, i, i + places), ctx.slice_axis(ids, 1, start, start + 1)]
    after = ctx.cast(ctx.slice_axis(ids, 1, n - 1, length), DType.INT64)
    pieces = [ctx.elementwise(repeats, *operands[k : k + 6]) for k in range(0, len(operands), 6)]
    old = ctx.add(GatherElements(axis=1), [scores, after])
    if not pieces:
        update = ctx.full(float("-inf"), scores.dtype, (batch, places))
    else:
        hit = ctx.chain("and", pieces)
        update = ctx.elementwise(lambda h, s: where(h, float("-inf"), s), hit, old)
    return ctx.add(ScatterElements(axis=1, reduction="min"), [scores, after, update])


# Hashes


def _rotated(x: Sym, bits: int) -> Sym:
    return x.call("shl", bits).call("bitor", x.call("shr", 32 - bits))


def murmur_hash(words: Sequence[Sym], seed: int) -> Sym:
    """Return MurmurHash3_x86_32 of a key of 32-bit words, as uint32."""
    h: Sym | None = None
    for word in words:
        k = _rotated(word * 0xCC9E2D51, 15) * 0x1B873593
        h = k.call("bitxor", seed) if h is None else h.call("bitxor", k)
        h = _rotated(h, 13) * 5 + 0xE6546B64
    assert h is not None
    h = h.call("bitxor", 4 * len(words))
    h = h.call("bitxor", h.call("shr", 16)) * 0x85EBCA6B
    h = h.call("bitxor", h.call("shr", 13)) * 0xC2B2AE35
    return h.call("bitxor", h.call("shr", 16))


@onnx_op("MurmurHash3", domain=MS)
def murmur_hash3(ctx: NodeContext) -> Result:
    """Import MurmurHash3: hash of each element's bytes, as uint32, or as int32 if `positive` is 0."""
    x, seed = ctx.input(0), ctx.attr("seed", 0) & 0xFFFFFFFF
    dtype = DType.UINT32 if ctx.attr("positive", 1) else DType.INT32
    if x.dtype is DType.STRING:
        return ctx.host_as([TensorType(dtype, x.shape)], "strings are the host's")
    if x.dtype.size not in (4, 8):
        raise UnsupportedOpError(f"{ctx.label} hashes {x.type}; known are strings and elements of 32 and 64 bits")

    def hashed(v: Sym) -> Sym:
        if v.dtype.size == 4:
            words = [v.typed("bits", DType.UINT32)]
        else:
            whole = v.typed("bits", DType.UINT64)
            words = [whole.cast(DType.UINT32), whole.call("shr", 32).cast(DType.UINT32)]
        return murmur_hash(words, seed).cast(dtype)

    return ctx.elementwise(hashed, x)


@onnx_op("NGramHashMapping", domain=MS)
def ngram_hash_mapping(ctx: NodeContext) -> Result:
    """Import NGramHashMapping: hashes of the n-grams that end at each token, for each head; and the last tokens.

    A hash is the xor of tokens times multipliers, modulo the head's size: [B,S,(most - 1) * heads]. The last tokens are
    the past of the next call.
    """
    refuse(ctx, reset_on_eos=ctx.attr("reset_on_eos", 0), segment_ids=ctx.get(6))
    ids, multipliers, sizes = ctx.input(0), ctx.input(1), ctx.input(2)
    past, offsets, eos = ctx.get(3), ctx.get(4), ctx.get(5)
    most, heads = ctx.attr("max_ngram_size", 2), ctx.attr("n_head_per_ngram", 1)
    (batch, steps), before = ids.shape, most - 1
    if past is None:
        fill = ctx.scalar(ctx.attr("pad_id", 0), ids.dtype) if eos is None else ctx.reshape(eos, ())
        past = ctx.expand(fill, (batch, before))
    told = ctx.concat([past, ids], 1)
    factors = ctx.split_axis(multipliers, 0, (1,) * multipliers.shape[0])
    mixed = ctx.elementwise(lambda t, m: t * m, ids, factors[0])
    orders = []
    for n in range(2, most + 1):
        earlier = ctx.slice_axis(told, 1, most - n, most - n + steps)
        mixed = ctx.elementwise(lambda x, t, m: x.call("bitxor", t * m), mixed, earlier, factors[n - 1])
        first = (n - 2) * heads
        own = [None if v is None else ctx.slice_axis(v, 0, first, first + heads) for v in (sizes, offsets)]

        def place(x: Sym, size: Sym, offset: Sym | None) -> Sym:
            rest = x.call("mod", size)
            return rest if offset is None else rest + offset

        orders.append(ctx.elementwise(place, ctx.reshape(mixed, (batch, steps, 1)), *own))
    present = ctx.slice_axis(told, 1, steps, steps + before)
    return [ctx.concat(orders, 2), present][: ctx.n_outputs]
