"""Conversion of tensors from and to JSON lists, nested or flat."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np

from ..wire.datatypes import Array, check_texts, dtype_of
from ..wire.serve_errors import Invalid, Unsupported

_BINARY_ONLY = ("FP16", "BF16")
"""Datatypes without a JSON form in the protocol."""
_KINDS = {bool: "booleans", int: "whole numbers", float: "numbers with a fraction", str: "texts"}


def read_json(where: str, datatype: str, shape: tuple[int, ...], data: Any) -> Array:
    """The array of `shape` with the elements of `data`. where: the tensor's name in messages.

    Invalid for values of another kind or range, for other nesting than the shape's, and for a wrong number of elements.
    """
    if datatype in _BINARY_ONLY:
        raise Unsupported(f"{where}: {datatype} has no JSON form; send it as binary data (binary_data_size)")
    if not isinstance(data, list):
        raise Invalid(f"{where}: 'data' is no list")
    flat, sizes = _flatten(where, data, len(shape))
    if len(flat) != math.prod(shape):
        raise Invalid(f"{where}: 'data' has {len(flat)} elements, and shape {list(shape)} has {math.prod(shape)}")
    if len(sizes) > 1 and sizes != shape:
        raise Invalid(f"{where}: 'data' is nested as {list(sizes)}, and the shape is {list(shape)}")
    _check_kinds(where, datatype, set(map(type, flat)))
    return _array(where, datatype, flat).reshape(shape)


def write_json(where: str, datatype: str, array: Array) -> list[Any]:
    """The elements in order, for `json.dumps`. Unsupported, Invalid without a JSON form."""
    if datatype in _BINARY_ONLY:
        raise Unsupported(f"{where}: {datatype} has no JSON form; ask for binary data (binary_data)")
    listed: list[Any] = array.reshape(-1).tolist()
    if datatype != "BYTES":
        return listed
    texts = []
    for number, item in enumerate(listed):
        try:
            texts.append(item.decode() if isinstance(item, bytes) else str(item))
        except UnicodeDecodeError:
            raise Invalid(
                f"{where}: element {number} is no UTF-8 text, which alone has a JSON form; ask for binary data "
                "(binary_data)"
            ) from None
    return texts


def _flatten(where: str, data: list[Any], rank: int) -> tuple[list[Any], tuple[int, ...]]:
    """The elements of nested lists, and the length of each level. Invalid beyond `rank` levels."""
    flat, sizes = data, [len(data)]
    while flat and isinstance(flat[0], list):
        lengths = set(map(len, flat)) if set(map(type, flat)) == {list} else set()
        if len(lengths) != 1 or len(sizes) >= max(rank, 1):
            raise Invalid(f"{where}: 'data' nests lists of unequal lengths, or deeper than its shape")
        flat = list(chain.from_iterable(flat))
        sizes.append(lengths.pop())
    return flat, tuple(sizes)


def _check_kinds(where: str, datatype: str, found: set[type]) -> None:
    if datatype == "BYTES":
        allowed: set[type] = {str}
    elif datatype == "BOOL":
        allowed = {bool}
    else:
        allowed = {int, float} if datatype.startswith("FP") else {int}
    if not found <= allowed:
        strange = _KINDS.get(min(found - allowed, key=str), "objects, lists or null")
        expected = " or ".join(_KINDS[kind] for kind in (int, float, bool, str) if kind in allowed)
        raise Invalid(f"{where}: 'data' has {strange}, and {datatype} has {expected}")


def _array(where: str, datatype: str, flat: list[Any]) -> Array:
    try:
        if datatype == "BYTES":
            check_texts(len(flat), where)
            array = np.empty(len(flat), object)
            array[:] = [text.encode() for text in flat]
            return array
        if not datatype.startswith("FP"):
            return np.array(flat, dtype_of(datatype))
        wide = np.array(flat, np.float64)
    except OverflowError:
        raise Invalid(f"{where}: 'data' has values out of the range of {datatype}") from None
    except UnicodeEncodeError:
        raise Invalid(f"{where}: 'data' has texts that are no Unicode") from None
    with np.errstate(over="ignore"):
        array = wide.astype(dtype_of(datatype))
    if not np.array_equal(np.isinf(array), np.isinf(wide)):
        raise Invalid(f"{where}: 'data' has values out of the range of {datatype}")
    return array
