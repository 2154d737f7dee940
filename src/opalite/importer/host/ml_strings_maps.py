"""Host operators of ai.onnx.ml on strings and maps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from ...errors import InputError, ModelError, ShapeError
from ...ir import Array
from ..proto.graphdef import DOMAIN
from .numpy_ops import HostNode, Step, host_op

ML = "ai.onnx.ml"


@host_op("Label", DOMAIN)
def label(node: HostNode) -> Step:
    """Return labels[position]; -1 selects the last."""
    labels = np.array(node.attrs["labels"], object)
    return lambda inputs: [labels[np.asarray(inputs[0])]]


@host_op("KeyIndex", DOMAIN)
def key_index(node: HostNode) -> Step:
    """Return the index of each element among the keys, -1 if absent; InputError for absent ones if `required`."""
    attrs = node.attrs
    find = _find_text(attrs["keys"], attrs["last"]) if "keys" in attrs else _find_number(attrs)

    def run(inputs: Sequence[Any]) -> list[Any]:
        x = np.asarray(inputs[0])
        found = find(x)
        if attrs["required"] and (found < 0).any():
            unknown = x.reshape(-1)[int(np.flatnonzero(found.reshape(-1) < 0)[0])]
            raise InputError(f"{unknown!r} is none of its {len(attrs.get('keys', ())) or 'known'} categories")
        return [found]

    return run


def _find_text(keys: Sequence[str], last: int) -> Any:
    numbers = range(len(keys))
    known = dict(zip(keys, numbers, strict=True)) if last else dict(zip(reversed(keys), reversed(numbers), strict=True))

    def find(x: Array) -> Array:
        flat = x.reshape(-1).tolist()
        found = np.fromiter((known.get(v, -1) for v in flat), np.int64, len(flat))
        return found.reshape(x.shape)

    return find


def _find_number(attrs: dict[str, Any]) -> Any:
    """Make a binary search over numbers; NaN equals NaN."""
    bits = attrs.get("bits")
    keys = np.asarray(attrs["numbers"], np.int64) if bits is None else np.asarray(bits, np.int64).view(np.float64)
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]

    def find(x: Array) -> Array:
        wanted = x.astype(ranked.dtype)
        if attrs["last"]:
            at = np.maximum(np.searchsorted(ranked, wanted, "right") - 1, 0)
        else:
            at = np.minimum(np.searchsorted(ranked, wanted, "left"), len(ranked) - 1)
        same = ranked[at] == wanted
        if ranked.dtype.kind == "f":
            same |= np.isnan(ranked[at]) & np.isnan(wanted)
        return np.where(same, order[at], -1)

    return find


@host_op("ZipMap", ML)
def zip_map(node: HostNode) -> Step:
    """Convert rows of scores to a sequence of maps from label to score."""
    labels: list[Any] = list(node.attrs.get("classlabels_strings") or node.attrs.get("classlabels_int64s") or ())

    def run(inputs: Sequence[Any]) -> list[Any]:
        scores = np.asarray(inputs[0])
        scores = scores.reshape(1, -1) if scores.ndim == 1 else scores
        if scores.ndim != 2 or scores.shape[1] != len(labels):
            raise ShapeError(f"ZipMap has {len(labels)} labels for scores of shape {list(scores.shape)}")
        return [[*map(dict, map(zip, repeat(labels), scores.tolist()))]]

    return run


@host_op("DictVectorizer", ML)
def dict_vectorizer(node: HostNode) -> Step:
    """Place the values of a map at the positions of their keys in a vocabulary: [1, size]; zeros elsewhere."""
    words = node.attrs.get("string_vocabulary") or node.attrs.get("int64_vocabulary")
    if not words:
        raise ModelError("DictVectorizer has neither string_vocabulary nor int64_vocabulary")

    def run(inputs: Sequence[Any]) -> list[Any]:
        rows = inputs[0] if isinstance(inputs[0], list) else [inputs[0]]
        maps = [dict(row) for row in rows]
        values = [np.asarray(v) for m in maps for v in m.values()]
        if any(v.dtype.kind in "OU" for v in values):
            return [np.array([[m.get(w, "") for w in words] for m in maps], object)]
        # A Python float in a map was a float32 of another operator.
        kind = np.result_type(*values) if values and _is_typed(maps) else _plain_kind(values)
        return [np.array([[m.get(w, 0) for w in words] for m in maps], kind)]

    return run


def _is_typed(maps: Sequence[dict[Any, Any]]) -> bool:
    return any(isinstance(v, np.generic | np.ndarray) for m in maps for v in m.values())


def _plain_kind(values: Sequence[Array]) -> Any:
    return np.int64 if values and all(v.dtype.kind == "i" for v in values) else np.float32


@host_op("CastMap", ML)
def cast_map(node: HostNode) -> Step:
    """Return the values of a map ordered by key, [1, n]; with map_form SPARSE at index key, [1, max_map]."""
    to: dict[str, Any] = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
    kind = to.get(node.attrs.get("cast_to", "TO_FLOAT"))
    if kind is None:
        raise ModelError(f"CastMap has cast_to '{node.attrs['cast_to']}'; known are {', '.join(to)}")

    def cast(value: Any) -> Any:
        value = value.item() if isinstance(value, np.ndarray | np.generic) else value
        if kind is object:
            return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        return float(value) if kind is np.float32 else int(float(value))

    def run(inputs: Sequence[Any]) -> list[Any]:
        items = sorted(dict(inputs[0]).items())
        if node.attrs.get("map_form", "DENSE") == "DENSE":
            return [np.array([[cast(v) for _, v in items]], kind).reshape(1, len(items))]
        most = int(node.attrs.get("max_map", 1))
        if items and not 0 <= items[0][0] <= items[-1][0] < most:
            raise InputError(f"CastMap has keys {items[0][0]} to {items[-1][0]}, max_map is {most}")
        out = np.full((1, most), "0" if kind is object else 0, kind)
        for key, v in items:
            out[0, key] = cast(v)
        return [out]

    return run
