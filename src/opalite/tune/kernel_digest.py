"""Digests of kernel code, so that a change of a kernel invalidates its tuning entries."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .. import kernels
from ..ir.plugins import INCLUDE, included_files, is_foreign, named_sources
from ..kernels.kernel import Kernel
from ..kernels.kernel_sources import source_name

_FOLDER = Path(kernels.__file__).parent
_ROOT = _FOLDER.parents[len(kernels.__name__.split(".")) - 1]


def kernel_digest(kernel: Kernel) -> str:
    """The kernel's name with a digest of every file of its code."""
    modules = tuple(cls.__module__ for cls in type(kernel).__mro__)
    digest = _digest if not is_foreign(type(kernel)) else _digest.__wrapped__  # files that are edited between two runs
    return f"{kernel.name}:{digest(kernel.source, modules)}"


@cache
def _digest(source: str, modules: tuple[str, ...]) -> str:
    sha = hashlib.sha256()
    for name in files_of(source, modules):
        sha.update(source_name(name).encode() + (_FOLDER / name).read_bytes())
    return sha.hexdigest()[:16]


def files_of(source: str, modules: tuple[str, ...]) -> list[str]:
    """Files of a kernel: `source` and its includes, `modules` (absolute names) and their imports within kernels/.

    Includes the .cl files that those modules name. Paths are relative to kernels/, or absolute outside.
    """
    waiting = [_FOLDER / "include/common.cl", _FOLDER / source]
    waiting += filter(None, (_module_file(name) or _foreign_file(name) for name in modules))
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file():
            found.add(path)
            waiting += _behind(path) if path.is_relative_to(_FOLDER) else _foreign_sources(path)
    return sorted((path.relative_to(_FOLDER) if path.is_relative_to(_FOLDER) else path).as_posix() for path in found)


@cache
def _behind(path: Path) -> tuple[Path, ...]:
    """The files below kernels/ that the file at `path`, one of them, names, and the one beside a module."""
    if path.suffix == ".cl":
        return tuple(_FOLDER / name for name in INCLUDE.findall(path.read_text()))
    nodes = list(ast.walk(ast.parse(path.read_text())))
    texts = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    sources = [_FOLDER / text for text in texts if text.endswith(".cl") and len(text.split()) == 1]
    imported = (file for n in nodes for name in _imported(n, path) if (file := _module_file(name)) is not None)
    return (path.with_suffix(".cl"), *sources, *imported)


def _foreign_sources(path: Path) -> list[Path]:
    """The .cl files that another package's file at `path` names."""
    if path.suffix != ".cl":
        return named_sources(path)
    return [*included_files(path), *(_FOLDER / name for name in INCLUDE.findall(path.read_text()))]


def _imported(node: ast.AST, path: Path) -> Iterator[str]:
    """Absolute names that an import statement in the file at `path` may mean: modules, or their members."""
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = path.parent.relative_to(_ROOT).parts
        base = package[: len(package) - node.level + 1] if node.level else ()
        module = ".".join((*base, *([node.module] if node.module else [])))
        yield module
        yield from (f"{module}.{a.name}" for a in node.names)


def _module_file(name: str) -> Path | None:
    """The file of a module of kernels/; None for packages and for modules elsewhere."""
    path = (_ROOT / name.replace(".", "/")).with_suffix(".py")
    return path if path.is_relative_to(_FOLDER) and path.is_file() else None


def _foreign_file(name: str) -> Path | None:
    """The file of a third-party module that registers a kernel; None for Opalite's and Python's own modules."""
    file = getattr(sys.modules.get(name), "__file__", None)
    top = name.partition(".")[0]
    is_own = top == __name__.partition(".")[0] or top in sys.stdlib_module_names
    return None if file is None or is_own else Path(file)
