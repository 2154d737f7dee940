"""Categorical encoders of ai.onnx.ml: the host looks up strings, the device maps the indices to numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ModelError, ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import Array, DType, TensorType, Value
from ...ops.gather import Gather
from ..host.onnx_reference import NeedTask
from ..walk.node_context import NodeContext, onnx_op
from .classifier_scores import ML, STRINGS_ON_HOST, pick_strings, text_array

_COMPARED = 64  # up to this many numeric keys are compared on the device; more are looked up by the host
_SPAN, _GAPS = 4096, 16  # integer keys within this span, or up to this many times their count, become a table


def key_index(ctx: NodeContext, x: Value, keys: Array, last: bool, required: bool) -> Value:
    """Return the index of each element of x among the keys, -1 if absent: int64 of x's shape.

    last: the last of equal keys wins, else the first. required: an absent element is an error.
    """
    if (x.dtype is DType.STRING) != (keys.dtype == object):
        raise ShapeError(
            f"{ctx.label} has keys of type {'string' if keys.dtype == object else keys.dtype} for {x.type}"
        )
    if keys.dtype != object and len(keys) <= _COMPARED and not required and x.type.count and len(keys):
        return _by_comparison(ctx, x, keys, last)
    if keys.dtype.kind == "i" and x.dtype.is_int and not required and x.type.count and len(keys):
        least, most = int(keys.min()), int(keys.max())
        if most - least < max(_SPAN, _GAPS * len(keys)):
            return _by_table(ctx, x, keys, last, least, most)
    types = [TensorType(DType.INT64, x.shape)]
    reason = STRINGS_ON_HOST if keys.dtype == object else "it looks for its keys in a table"
    attrs: dict[str, Any] = {"last": int(last), "required": int(required)}
    if keys.dtype == object:
        attrs["keys"] = [str(k) for k in keys]
    elif keys.dtype.kind == "f":
        attrs["bits"] = keys.astype(np.float64).view(np.int64).tolist()
    else:
        attrs["numbers"] = keys.astype(np.int64).tolist()
    if not len(keys):
        return ctx.constant(np.full(x.shape, -1, np.int64))
    return ctx.add_host("KeyIndex", [x], types, reason, **attrs)[0]


def _by_comparison(ctx: NodeContext, x: Value, keys: Array, last: bool) -> Value:
    """Find indices by comparison with every key: the largest, or smallest, index of an equal key."""
    number = np.arange(len(keys), dtype=np.int32) if last else np.arange(len(keys), dtype=np.int32)[::-1].copy()
    column = ctx.reshape(x, (*x.shape, 1))

    def rank(v: Sym, k: Sym, i: Sym) -> Sym:
        same = v.eq(k)
        if v.dtype.is_float:
            same = same.call("or", v.call("isnan").call("and", k.call("isnan")))
        return where(same, i, -1)

    ranks = ctx.elementwise(rank, column, ctx.constant(keys.astype(x.dtype.np)), ctx.constant(number))
    best = ctx.reshape(ctx.reduce(ranks, "max", (len(x.shape),)), x.shape)
    if last:
        return ctx.cast(best, DType.INT64)
    return ctx.elementwise(lambda b: where(b < 0, b, len(keys) - 1 - b).cast(DType.INT64), best)


def _by_table(ctx: NodeContext, x: Value, keys: Array, last: bool, least: int, most: int) -> Value:
    """Find indices by a table of all integers from `least` to `most`, plus one entry for others."""
    span = most - least + 1
    table = np.full(span + 1, -1, np.int64)
    numbers = np.arange(len(keys))
    order = numbers if last else numbers[::-1]  # later writes win
    table[keys[order] - least] = order
    row = ctx.elementwise(lambda v: where((v < least).call("or", v > most), span, v - least), ctx.cast(x, DType.INT64))
    return ctx.add(Gather(axis=0), [ctx.constant(table), row])


def lookup_value(ctx: NodeContext, place: Value, values: Array, default: Any) -> Value:
    """Return values[place]; `default` if the index is -1."""
    table = np.concatenate([values, np.array([default], values.dtype)])
    if values.dtype == object:
        return pick_strings(ctx, place, table)
    return ctx.add(Gather(axis=0), [ctx.constant(table), place])


@onnx_op("OneHotEncoder", domain=ML)
def one_hot_encoder(ctx: NodeContext) -> Value:
    """Import OneHotEncoder: float32 of x's shape plus an axis: 1 at the element's category; floats are truncated."""
    x = ctx.input(0)
    strings, numbers = ctx.attr("cats_strings", None), ctx.attr("cats_int64s", None)
    if bool(strings) == bool(numbers):
        raise ModelError(f"{ctx.label} needs either cats_strings or cats_int64s")
    if x.dtype is not DType.STRING and strings:
        raise ShapeError(f"{ctx.label} has cats_strings for {x.type}")
    required = not ctx.attr("zeros", 1)
    if x.dtype is DType.STRING:  # equal to no number
        keys = text_array(strings or ()) if strings or required else np.zeros(len(numbers), object)
    else:
        keys = np.asarray(numbers, np.int64)
    if x.dtype is not DType.STRING and not required:
        unique = np.array([len(keys) - 1 - np.flatnonzero(keys[::-1] == k)[0] for k in keys]) == np.arange(len(keys))

        def at(v: Sym, k: Sym, u: Sym) -> Sym:
            same = (v.call("trunc") if v.dtype.is_float else v).eq(k).call("and", u)
            return same.cast(DType.FLOAT32)

        x = x if x.dtype.is_float else ctx.cast(x, DType.INT64)
        rows = ctx.reshape(x, (*x.shape, 1))
        return ctx.elementwise(at, rows, ctx.constant(keys.astype(x.dtype.np)), ctx.constant(unique))
    whole = x if x.dtype is DType.STRING else ctx.cast(x, DType.INT64)
    place = key_index(ctx, whole, keys, last=True, required=required)
    rank = len(x.shape)
    return ctx.elementwise(
        lambda p: p.eq(coord(p.builder, rank)).cast(DType.FLOAT32),
        ctx.reshape(place, (*x.shape, 1)),
        shape=(*x.shape, len(keys)),
    )


@onnx_op("LabelEncoder", since=1, domain=ML)
def label_encoder_1(ctx: NodeContext) -> Value:
    """Import LabelEncoder: version 1: strings to indices in classes_strings, or indices to strings."""
    x, classes = ctx.input(0), text_array(ctx.attr("classes_strings", ()))
    if x.dtype is DType.STRING:
        place = key_index(ctx, x, classes, last=True, required=False)
        default = ctx.attr("default_int64", -1)
        return place if default == -1 else ctx.elementwise(lambda p: where(p < 0, default, p), place)
    inside = ctx.elementwise(lambda p: where((p < 0).call("or", p >= len(classes)), -1, p), ctx.cast(x, DType.INT64))
    return lookup_value(ctx, inside, classes, ctx.attr("default_string", "_Unused"))


@onnx_op("LabelEncoder", since=2, domain=ML)
def label_encoder_2(ctx: NodeContext) -> Value:
    """Import LabelEncoder: replaces each element that is a key by its value, others by the default."""
    keys, _ = _table(ctx, "keys")
    values, kind = _table(ctx, "values")
    if len(keys) != len(values):
        raise ModelError(f"{ctx.label} has {len(keys)} keys and {len(values)} values")
    if keys.dtype.kind == "f" and ctx.version < 4:  # since version 4 NaN equals NaN
        keys, values = keys[~np.isnan(keys)], values[~np.isnan(keys)]
    given = ctx.attr("default_tensor", None)
    if given is not None and np.asarray(given).size == 1:
        default = np.asarray(given).reshape(-1)[0]
    else:
        usual: dict[str, Any] = {"string": "_Unused", "int64": -1, "float": -0.0}
        default = ctx.attr(f"default_{kind}", usual.get(kind, 0))
    if values.dtype == object:
        default = _text(default)
    place = key_index(ctx, ctx.input(0), keys, last=False, required=False)
    return lookup_value(ctx, place, values, default)


def _table(ctx: NodeContext, side: str) -> tuple[Array, str]:
    """Return keys or values, and their kind: strings, int64s, floats or a tensor."""
    tensor = ctx.attr(f"{side}_tensor", None)
    if tensor is not None:
        array = np.asarray(tensor).reshape(-1)
        kind = {"f": "float", "i": "int64", "u": "int64"}.get(array.dtype.kind, "string")
        return (text_array(array) if kind == "string" else array), kind
    for kind, dtype in (("string", None), ("int64", np.int64), ("float", np.float32)):
        found = ctx.attr(f"{side}_{kind}s", None)
        if found:
            return (text_array(found) if dtype is None else np.asarray(found, dtype)), kind
    raise ModelError(
        f"{ctx.label} has no {side}: neither {side}_strings, {side}_int64s, {side}_floats nor {side}_tensor"
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@onnx_op("CategoryMapper", domain=ML)
def category_mapper(ctx: NodeContext) -> Value:
    """Import CategoryMapper: strings to category numbers, or the reverse."""
    x = ctx.input(0)
    strings, numbers = text_array(ctx.attr("cats_strings", ())), np.asarray(ctx.attr("cats_int64s", ()), np.int64)
    if len(strings) != len(numbers):
        raise ModelError(f"{ctx.label} has {len(strings)} cats_strings and {len(numbers)} cats_int64s")
    if x.dtype is DType.STRING:
        place = key_index(ctx, x, strings, last=True, required=False)
        return lookup_value(ctx, place, numbers, ctx.attr("default_int64", -1))
    place = key_index(ctx, ctx.cast(x, DType.INT64), numbers, last=True, required=False)
    return lookup_value(ctx, place, strings, ctx.attr("default_string", "_Unused"))


@onnx_op("DictVectorizer", domain=ML)
@onnx_op("CastMap", domain=ML)
@onnx_op("ZipMap", domain=ML)
def map_operator(ctx: NodeContext) -> Value:
    """Import an operator on maps, which runs on the host."""
    raise NeedTask
