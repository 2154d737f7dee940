"""Normalisation of inputs that a file's metadata says, from the FlatBuffer named TFLITE_METADATA.

The package `tflite` has no classes for its tables. Their fields are read by number, as TensorFlow Lite's
metadata_schema.fbs gives them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....extras import need

NAME = "TFLITE_METADATA"
KEY = "tflite.normalization"
"""Key of the model's metadata with {input: {"mean": [...], "std": [...]}} as JSON."""

_SUBGRAPHS, _INPUTS, _PROCESS_UNITS = 3, 2, 4  # of ModelMetadata, SubGraphMetadata, TensorMetadata
_OPTIONS_TYPE, _OPTIONS, _NORMALIZATION = 0, 1, 1  # of ProcessUnit; the union's number
_MEAN, _STD = 0, 1  # of NormalizationOptions
_MOST = 64  # entries of a vector


def read_normalization(raw: bytes, inputs: Sequence[str]) -> str:
    """Return the first subgraph's normalisations by the names of its inputs, as JSON; '' if there are none."""
    found = {}
    try:
        for subgraph in _vector(_root(raw), _SUBGRAPHS)[:1]:
            for name, tensor in zip(inputs, _vector(subgraph, _INPUTS), strict=False):
                for unit in _vector(tensor, _PROCESS_UNITS):
                    options = _normalization(unit)
                    if options is not None:
                        found[name] = {"mean": _floats(options, _MEAN), "std": _floats(options, _STD)}
    except (struct.error, IndexError, ValueError, TypeError, OverflowError):
        return ""  # damaged metadata says nothing
    return json.dumps(found) if found else ""


def _root(raw: bytes) -> Any:
    table = need("flatbuffers.table", "a .tflite file", "tflite").Table
    return table(raw, struct.unpack_from("<I", raw)[0])


def _at(table: Any, field: int) -> int:
    return int(table.Offset(4 + 2 * field))


def _entries(table: Any, field: int, read: Callable[[int], Any], size: int) -> list[Any]:
    offset = _at(table, field)
    if not offset:
        return []
    start, count = table.Vector(offset), min(_MOST, table.VectorLen(offset))
    return [read(start + i * size) for i in range(count)]


def _vector(table: Any, field: int) -> list[Any]:
    return _entries(table, field, lambda at: type(table)(table.Bytes, table.Indirect(at)), 4)


def _normalization(unit: Any) -> Any:
    kind, offset = _at(unit, _OPTIONS_TYPE), _at(unit, _OPTIONS)
    if not kind or not offset or unit.Bytes[unit.Pos + kind] != _NORMALIZATION:
        return None
    return type(unit)(unit.Bytes, unit.Indirect(unit.Pos + offset))


def _floats(table: Any, field: int) -> list[float]:
    return _entries(table, field, lambda at: float(np.frombuffer(table.Bytes, "<f4", 1, at)[0]), 4)
