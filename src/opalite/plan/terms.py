"""Terms: expressions over sizes, in the places of numbers in the records of a template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from .tables import make_table


@dataclass(frozen=True)
class Term:
    """An expression over symbols s0, s1, ...: a number of a template that depends on sizes."""

    text: str


@dataclass(frozen=True)
class TypedTerm:
    """A term as an argument of a kernel: in the NumPy type of that name."""

    text: str
    dtype: str


@dataclass(frozen=True)
class TableTerms:
    """Contents of a slot: numbers of a NumPy type, some of them terms."""

    numbers: tuple[Any, ...]
    dtype: str


@dataclass(frozen=True)
class MadeTerms:
    """Contents of a slot that a function of tables.py makes of arguments in which terms are."""

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


def fill(x: Any, value_of: Callable[[str], Any]) -> Any:
    """`x`, a record or container of them, with `value_of(text)` for each term, and texts for types."""

    def filled(t: Any) -> Any:
        match t:
            case Term(text):
                return value_of(text)
            case TypedTerm(text, dtype):
                return np.dtype(dtype).type(value_of(text))
            case TableTerms(numbers, dtype):
                return np.array(fill(numbers, value_of), dtype)
            case MadeTerms(maker, args):
                return make_table(maker, fill(args, value_of))
            case TypeText(name, dtype, shape):
                return str(TypeText(name, dtype, fill(shape, value_of)))
        return t

    return mapped(x, filled)


def texts_in(x: Any) -> list[str]:
    """The texts of the terms in a record or container of them."""
    found: list[str] = []

    def see(leaf: Any) -> Any:
        if isinstance(leaf, Term | TypedTerm):
            found.append(leaf.text)
        return leaf

    mapped(x, see)
    return found


def mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """`x`, a record or container of them, with `change(leaf)` for the leaves; `x` itself where nothing changes."""
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
