"""Identity of a kernel's code, so that a change of it misses the tuning database and never misleads."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .. import kernels
from ..kernels.kernel import Kernel

_FOLDER = Path(kernels.__file__).parent
_ROOT = _FOLDER.parents[len(kernels.__name__.split(".")) - 1]
_INCLUDE = re.compile(r'^#include "([\w/]+\.cl)"$', re.MULTILINE)


def kernel_digest(kernel: Kernel) -> str:
    """The kernel's name and a digest of every file that its code comes from."""
    return f"{kernel.name}:{_digest(kernel.source, tuple(cls.__module__ for cls in type(kernel).__mro__))}"


@cache
def _digest(source: str, modules: tuple[str, ...]) -> str:
    sha = hashlib.sha256()
    for name in files_of(source, modules):
        sha.update(name.encode() + (_FOLDER / name).read_bytes())
    return sha.hexdigest()[:16]


def files_of(source: str, modules: tuple[str, ...]) -> list[str]:
    """Files that a kernel comes from: `source` and what it includes, `modules` (absolute names), what those of kernels/
    import in turn, and the .cl files they name. Paths from kernels/, or absolute ones where files lie elsewhere."""
    waiting = [_FOLDER / "include/common.cl", _FOLDER / source]
    waiting += filter(None, (_module_file(name) or _foreign_file(name) for name in modules))
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file():
            found.add(path)
            waiting += _behind(path)
    return sorted((path.relative_to(_FOLDER) if path.is_relative_to(_FOLDER) else path).as_posix() for path in found)


@cache
def _behind(path: Path) -> tuple[Path, ...]:
    """The files below kernels/ that the one at `path` names; of a foreign module, none."""
    if path.suffix == ".cl":
        return tuple(_FOLDER / name for name in _INCLUDE.findall(path.read_text()))
    if not path.is_relative_to(_FOLDER):
        return ()
    nodes = list(ast.walk(ast.parse(path.read_text())))
    texts = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    sources = [_FOLDER / text for text in texts if text.endswith(".cl") and len(text.split()) == 1]
    return (*sources, *(file for n in nodes for name in _imported(n, path) if (file := _module_file(name)) is not None))


def _imported(node: ast.AST, path: Path) -> Iterator[str]:
    """Absolute names of what an import statement in the file at `path` may mean: modules, or what lies in them."""
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = path.parent.relative_to(_ROOT).parts
        base = package[: len(package) - node.level + 1] if node.level else ()
        module = ".".join((*base, *([node.module] if node.module else [])))
        yield module
        yield from (f"{module}.{a.name}" for a in node.names)


def _module_file(name: str) -> Path | None:
    """The file of a module of kernels/; None for a package, and for what lies elsewhere."""
    path = (_ROOT / name.replace(".", "/")).with_suffix(".py")
    return path if path.is_relative_to(_FOLDER) and path.is_file() else None


def _foreign_file(name: str) -> Path | None:
    """The file of somebody else's module, from which a registered kernel comes; None for Opalite's and Python's own."""
    file = getattr(sys.modules.get(name), "__file__", None)
    top = name.partition(".")[0]
    is_own = top == __name__.partition(".")[0] or top in sys.stdlib_module_names
    return None if file is None or is_own else Path(file)
