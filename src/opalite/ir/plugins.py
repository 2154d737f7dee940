"""Registry of code from other packages: kernels, operators and importer functions; cached plans depend on it.

Each registry calls `watch` to list its entries. `foreign_state` digests the code of entries from other packages. A
cached plan is rejected if that digest has changed.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_OWN = __name__.partition(".")[0]
_PLAIN = (str, bytes, int, float, complex, tuple, frozenset, dict, list, type(None))

_listings: list[Callable[[], Iterable[Any]]] = []


def watch(entries: Callable[[], Iterable[Any]]) -> None:
    """Add a registry: `entries` lists its classes, functions or instances."""
    _listings.append(entries)


def foreign_state() -> str:
    """Digest of the code of everything that other packages registered; '' if there is nothing."""
    found = sorted({text for entries in _listings for entry in entries() if (text := _describe(entry))})
    return hashlib.sha256("\0".join(found).encode("utf-8", "surrogatepass")).hexdigest() if found else ""


def _describe(entry: Any) -> str:
    """Text of all code that decides the behaviour of `entry`; '' for an entry of this package."""
    holder = entry if isinstance(entry, type | FunctionType) else type(entry)
    foreign = [c for c in holder.__mro__ if _is_foreign(c)] if isinstance(holder, type) else [holder]
    if not foreign or not any(map(_is_foreign, foreign)):
        return ""
    parts = [f"{holder.__module__}.{holder.__qualname__}"]
    for c in foreign:
        members = sorted(vars(c).items()) if isinstance(c, type) else [(c.__name__, c)]
        parts += [f"{name}={text}" for name, member in members for text in _member(member)]
        parts.append(_file_state(c.__module__))
    return "\n".join(parts)


def _is_foreign(c: Any) -> bool:
    module = str(getattr(c, "__module__", ""))
    return module.partition(".")[0] not in (_OWN, "builtins", "abc", "typing", "dataclasses")


def _member(member: Any) -> Iterator[str]:
    """Text of one attribute of a class: a function's code or a plain value; nothing for other objects."""
    if isinstance(member, property):
        for part in (member.fget, member.fset):
            yield from _member(part)
        return
    function = inspect.unwrap(getattr(member, "__func__", member))
    if isinstance(function, FunctionType):
        yield from _code(function.__code__)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        for value in (function.__defaults__, *cells):
            if _is_plain(value):
                yield from _constant(value)
    elif _is_plain(member):
        yield from _constant(member)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    if isinstance(value, tuple | list | frozenset):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _code(code: CodeType) -> Iterator[str]:
    """Text of a function's code, independent of where it was defined."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        yield from _code(constant) if isinstance(constant, CodeType) else _constant(constant)


def _constant(value: Any) -> Iterator[str]:
    """Text of a constant; for an absolute path of a .cl file the file's contents too."""
    yield repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
    if isinstance(value, str) and value.endswith(".cl") and Path(value).is_absolute():
        with suppress(OSError):
            yield Path(value).read_text(errors="replace")


def _file_state(module: str) -> str:
    """The contents of a module's file, with the functions that a class calls; '' if there is no file."""
    with suppress(OSError, TypeError):
        return Path(inspect.getfile(sys.modules[module])).read_text(errors="replace") if module in sys.modules else ""
    return ""
