"""Tables: access to a FlatBuffer by the classes of the package `tflite`, with every count checked.

A damaged file may claim any length, and let many entries share one large vector. All entries that are read are
counted, and may be eight times as many as the file has bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from ....errors import ModelFormatError
from ....extras import need

_SHARED = 8  # largest number of entries read, as a multiple of the file's bytes
_HELPERS = re.compile(r"^(Init|GetRootAs.*|.*(AsNumpy|Length|IsNone|BufferHasIdentifier))$")


def schema() -> Any:
    """Return the package `tflite`. ExtraError if it is missing."""
    return need("tflite", "a .tflite file", "tflite")


class Tables:
    """Checked access to the tables of one file."""

    def __init__(self, raw: Any) -> None:
        """`raw`: the bytes of the file."""
        self.size = len(raw)
        self._left = _SHARED * self.size

    def count(self, table: Any, field: str) -> int:
        """Return the length of a vector; ModelFormatError if the file cannot hold it."""
        n = int(getattr(table, f"{field}Length")())
        self._left -= n
        if n > self.size or self._left < 0:
            raise ModelFormatError(f"{type(table).__name__}.{field} is said to have {n} entries")
        return n

    def tables(self, table: Any, field: str) -> list[Any]:
        """Return the tables of a vector."""
        read = getattr(table, field)
        return [read(i) for i in range(self.count(table, field))]

    def numbers(self, table: Any, field: str) -> np.ndarray[Any, Any]:
        """Return a vector of numbers."""
        if not self.count(table, field):
            return np.empty(0, np.int64)
        return np.asarray(getattr(table, f"{field}AsNumpy")())

    def ints(self, table: Any, field: str) -> tuple[int, ...]:
        """Return a vector of integers."""
        return tuple(self.numbers(table, field).tolist())

    def options(self, table: Any) -> dict[str, Any]:
        """Return all fields of a table of numbers and strings, by their names in the schema: 'stride_w'."""
        found: dict[str, Any] = {}
        kind: Any = type(table)
        for name, is_vector in _fields(kind):
            if is_vector:
                found[_snake(name)] = self.ints(table, name)
            else:
                value = getattr(table, name)()
                found[_snake(name)] = text(value) if isinstance(value, bytes) else value
        return found

    def union(self, owner: Any, field: str) -> dict[str, Any]:
        """Return the options that a union field of an operator holds; none if it is empty."""
        names = _union_names(field)
        held = getattr(owner, field)()
        kind = names.get(int(getattr(owner, f"{field}Type")()))
        if held is None or kind is None:
            return {}
        table = getattr(schema(), kind)()
        table.Init(held.Bytes, held.Pos)
        return self.options(table)


def text(raw: bytes | None) -> str:
    """Decode a string of the file."""
    return (raw or b"").decode("utf-8", "replace")


@cache
def _fields(table: Any) -> tuple[tuple[str, bool], ...]:
    """Return (name, whether it is a vector of numbers) of each field; fields of tables are left out."""
    names = [n for n in vars(table) if n[0].isupper() and not _HELPERS.match(n)]
    vectors = {n for n in names if f"{n}Length" in vars(table)}
    return tuple((n, n in vectors) for n in names if n not in vectors or f"{n}AsNumpy" in vars(table))


@cache
def _union_names(field: str) -> Mapping[int, str]:
    return {number: name for name, number in vars(getattr(schema(), field)).items() if isinstance(number, int)}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
