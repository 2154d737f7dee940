"""Identity of a kernel's code, so that a change of it misses the tuning database and never misleads."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from .. import kernels
from ..kernels.base import Kernel

_FOLDER = Path(kernels.__file__).parent
_IMPORT = re.compile(r"^from \.(\w+) import", re.MULTILINE)
_SOURCE = re.compile(r'"(\w+\.cl)"')


def kernel_digest(kernel: Kernel) -> str:
    """The kernel's name and a digest of every file that its code comes from."""
    modules = {_module(cls) for cls in type(kernel).__mro__}
    return f"{kernel.name}:{_digest(kernel.source, tuple(sorted(m for m in modules if m)))}"


def _module(cls: type) -> str:
    package, _, name = cls.__module__.rpartition(".")
    return name if package == kernels.__name__ else ""


@cache
def _digest(source: str, modules: tuple[str, ...]) -> str:
    sha = hashlib.sha256()
    for name in files_of(source, modules):
        sha.update(name.encode() + _read(name))
    return sha.hexdigest()[:16]


def files_of(source: str, modules: tuple[str, ...]) -> list[str]:
    """Files of kernels/ behind a kernel: its modules, those that they import in turn, and the .cl files they name."""
    waiting = ["common.cl", source, *(f"{m}.py" for m in modules)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found or not (_FOLDER / name).is_file():
            continue
        found.add(name)
        text = _read(name).decode()
        waiting += _SOURCE.findall(text)
        if name.endswith(".py"):
            waiting += [f"{m}.py" for m in _IMPORT.findall(text)]
    return sorted(found)


@cache
def _read(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
