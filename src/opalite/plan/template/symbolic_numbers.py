"""Terms: expressions over sizes in the records of a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from operator import itemgetter
from typing import Any

import numpy as np

from ...ir.map_record import PLAIN, field_names
from ...lazy_dataclass import dataclass


@dataclass(frozen=True)
class Term:
    """An expression over symbols s0, s1, ..., in place of a number."""

    text: str


@dataclass(frozen=True)
class TypedTerm:
    """A term as a kernel argument of the NumPy type `dtype`."""

    text: str
    dtype: str


@dataclass(frozen=True)
class TableTerms:
    """Contents of a slot: numbers of a NumPy type, some of them terms."""

    numbers: tuple[Any, ...]
    dtype: str


@dataclass(frozen=True)
class SymbolicRecord:
    """Contents of a slot that a function of TABLES computes from arguments with terms."""

    maker: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class TypeText:
    """A tensor in a report, whose shape may hold terms."""

    name: str
    dtype: str
    shape: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"


TABLES: Mapping[str, tuple[str, str]] = {
    "row_table": ("permute_rows", "row_table"),
    "resize_offsets": ("resize", "offset_table"),
    "resize_weights": ("resize", "weight_table"),
}
"""Modules of opalite.ops and their functions by name: the only ones that a file may name. Imported on use."""


def make_table(maker: str, args: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The table of function `maker` for `args`, all plain. KeyError for an unknown name."""
    module, function = TABLES[maker]
    found: np.ndarray[Any, Any] = getattr(import_module(f"opalite.ops.{module}"), function)(*args)
    return found


def filler(x: Any, number: Callable[[str], Any]) -> Callable[[Any], Any]:
    """values -> `x`, a record or container, with values[number(text)] for each term, and texts for types."""
    match x:
        case Term(text):
            return itemgetter(number(text))
        case TypedTerm(text, name):
            at, dtype = number(text), np.dtype(name).type
            return lambda values: dtype(values[at])
        case TableTerms(numbers, name):
            made = filler(numbers, number)
            return lambda values: np.array(made(values), name)
        case SymbolicRecord(maker, args):
            made = filler(args, number)
            return lambda values: make_table(maker, made(values))
        case TypeText(text, name, shape):
            made = filler(shape, number)
            return lambda values: str(TypeText(text, name, made(values)))
    if not texts_in(x):
        return lambda values: x
    if isinstance(x, tuple | list):
        return _filled(type(x), list(x), number)
    if isinstance(x, dict):
        return _filled(lambda filled: dict(zip(x, filled, strict=True)), list(x.values()), number)
    assert is_dataclass(x)
    make: Callable[..., Any] = type(x)
    return _filled(lambda filled: make(*filled), [getattr(x, name) for name in field_names(type(x))], number)


def _filled(join: Callable[[list[Any]], Any], items: list[Any], number: Callable[[str], Any]) -> Callable[[Any], Any]:
    """values -> join(items with numbers for their terms)."""
    open_items = [(i, filler(item, number)) for i, item in enumerate(items) if texts_in(item)]

    def made(values: Any) -> Any:
        filled = items.copy()
        for i, make in open_items:
            filled[i] = make(values)
        return join(filled)

    return made


def texts_in(x: Any) -> list[str]:
    """The texts of the terms in a record or container."""
    found: list[str] = []
    _collect(x, found)
    return found


def _collect(x: Any, found: list[str]) -> None:
    kind = type(x)
    if kind is Term or kind is TypedTerm:
        found.append(x.text)
    elif kind is tuple or kind is list:
        for item in x:
            if type(item) not in PLAIN:
                _collect(item, found)
    elif kind is dict:
        for item in x.values():
            _collect(item, found)
    else:
        for name in field_names(kind):
            item = getattr(x, name)
            if type(item) not in PLAIN:
                _collect(item, found)
