"""Terms: expressions over sizes in the records of a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from operator import itemgetter
from typing import Any

import numpy as np

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
    return _filled(lambda filled: make(*filled), [getattr(x, f.name) for f in fields(x) if f.init], number)


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
            if type(item) not in _PLAIN:
                _collect(item, found)
    elif kind is dict:
        for item in x.values():
            _collect(item, found)
    else:
        names = _FIELDS.get(kind)
        if names is None:
            names = _FIELDS[kind] = tuple(f.name for f in fields(kind) if f.init) if is_dataclass(kind) else ()
        for name in names:
            item = getattr(x, name)
            if type(item) not in _PLAIN:
                _collect(item, found)


_PLAIN = frozenset((int, str, float, bool, bytes, type(None)))  # the most frequent types
_FIELDS: dict[type, tuple[str, ...]] = {}  # cache for `mapped`, by class


def mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """`x`, a record or container, with `change(leaf)` for the leaves; `x` itself if nothing changes."""
    y = change(x)
    if y is not x or isinstance(x, Term | TypedTerm):
        return y
    if type(x) in (tuple, list):
        made = [mapped(i, change) for i in x]
        return x if all(a is b for a, b in zip(x, made, strict=True)) else type(x)(made)
    if type(x) is dict:
        return {k: mapped(v, change) for k, v in x.items()}
    if is_dataclass(x) and not isinstance(x, type):
        changed = {}
        for f in fields(x):
            if f.init:
                old = getattr(x, f.name)
                if (new := mapped(old, change)) is not old:
                    changed[f.name] = new
        return replace(x, **changed) if changed else x
    return x
