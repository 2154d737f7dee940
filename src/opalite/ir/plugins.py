"""Registry of code from other packages: kernels, operators and importer functions; cached plans depend on it.

Each registry calls `watch` to list its entries. `foreign_state` digests the code of entries from other packages. A
cached plan is rejected if that digest has changed. `load_plugins` (load_plugins.py) imports what registers entries.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from .load_plugins import load_plugins, provider_of

_OWN = __name__.partition(".")[0]
_PLAIN = (str, bytes, int, float, complex, tuple, frozenset, dict, list, type(None))

_listings: list[Callable[[], Iterable[Any]]] = []


def watch(entries: Callable[[], Iterable[Any]]) -> None:
    """Add a registry: `entries` lists its classes, functions or instances."""
    _listings.append(entries)


def foreign_state() -> str:
    """Digest of the code of everything that other packages registered; '' if there is nothing."""
    load_plugins()
    found = sorted({text for entries in _listings for entry in entries() if (text := _describe(entry))})
    return hashlib.sha256("\0".join(found).encode("utf-8", "surrogatepass")).hexdigest() if found else ""


def foreign_providers() -> dict[str, str]:
    """The packages or files that registered operators and kernels, by the names of these."""
    load_plugins()
    holders = [e if isinstance(e, type) else type(e) for entries in _listings for e in entries()]
    return {c.__name__: provider_of(c.__module__) for c in holders if is_foreign(c)}


def _describe(entry: Any) -> str:
    """Text of all code that decides the behaviour of `entry`; '' for an entry of this package."""
    holder = entry if isinstance(entry, type | FunctionType) else type(entry)
    foreign = [c for c in holder.__mro__ if is_foreign(c)] if isinstance(holder, type) else [holder]
    if not foreign or not any(map(is_foreign, foreign)):
        return ""
    parts = [f"{holder.__module__}.{holder.__qualname__}"]
    for c in foreign:
        members = sorted(vars(c).items()) if isinstance(c, type) else [(c.__name__, c)]
        parts += [f"{name}={text}" for name, member in members for text in _member(member)]
        parts.append(_file_state(c.__module__))
    return "\n".join(parts)


def is_foreign(c: Any) -> bool:
    """Whether a class or function is of another package than this one and Python's own that classes build on."""
    module = str(getattr(c, "__module__", ""))
    return module.partition(".")[0] not in (_OWN, "builtins", "abc", "typing", "types", "dataclasses")


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
    """Text of a constant; for an absolute path of a .cl file its name and contents, with those that it includes."""
    if isinstance(value, str) and value.endswith(".cl") and Path(value).is_absolute():
        yield from source_texts(Path(value))
    else:
        yield repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def source_texts(path: Path) -> Iterator[str]:
    """The name and the contents of a .cl file and of the files beside it that it includes."""
    for file in included_files(path):
        with suppress(OSError):
            yield f"{file.name}\n{file.read_text(errors='replace')}"


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"[^\n]*$', re.MULTILINE)
"""An #include line of OpenCL C."""


def included_files(path: Path) -> list[Path]:
    """A .cl file and the files that it includes by paths from its folder, each once; those of this package are not."""
    found: dict[Path, None] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found[file] = None
        waiting += [file.parent / name for name in INCLUDE.findall(file.read_text(errors="replace"))]
    return list(found)


def _file_state(module: str) -> str:
    """The contents of a module's file, with the functions that a class calls, and of the .cl files that it names."""
    with suppress(OSError, TypeError, KeyError):
        path = Path(inspect.getfile(sys.modules[module]))
        texts = [text for source in named_sources(path) for text in source_texts(source)]
        return "\n".join([path.read_text(errors="replace"), *texts])
    return ""


def named_sources(path: Path) -> list[Path]:
    """The .cl files beside a module's file whose names are in its text, and the one of its own name."""
    names = re.findall(r"""["']([\w./-]+\.cl)["']""", path.read_text(errors="replace"))
    found = dict.fromkeys([path.with_suffix(".cl"), *(path.parent / name for name in names)])
    return [source for source in found if source.is_file()]
