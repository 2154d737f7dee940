"""Reads `.cl` files and assembles the program text of a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import KernelError
from ..ir.plugins import INCLUDE

FOLDER = Path(__file__).parent
"""The folder of this package's sources."""

_COMMON = "include/common.cl"
_INCLUDE = re.compile(r'^#include "([\w/]+\.cl)"$', re.MULTILINE)


@cache
def read_source(name: str) -> str:
    """Text of the `.cl` file at a path below kernels/, with each `#include "FOLDER/NAME.cl"` line expanded.

    Every program starts with include/common.cl, so including that file again adds nothing. An absolute path is a file
    of another package: its includes are looked for beside it first, and #line tells compilers its own lines.
    """
    if Path(name).is_absolute():
        return _read_foreign(Path(name), ())
    return _INCLUDE.sub(lambda m: "" if m[1] == _COMMON else read_source(m[1]), (FOLDER / name).read_text())


def _read_foreign(path: Path, outer: tuple[Path, ...]) -> str:
    """Text of another package's file. KernelError for an #include that finds no file, or its own file."""
    text = path.read_text(encoding="utf-8")

    def expanded(m: re.Match[str]) -> str:
        line = text.count("\n", 0, m.start()) + 1
        beside = path.parent / m[1]
        back = f'#line {line + 1} "{path.name}"'
        if beside.is_file():
            if beside in (*outer, path):
                raise KernelError(f"{path.name}:{line} includes {m[1]}, which is being included")
            return f"{_read_foreign(beside, (*outer, path))}\n{back}"
        if not (FOLDER / m[1]).is_file():
            raise KernelError(
                f"{path.name}:{line} includes {m[1]}, which is neither beside {path} nor one of Opalite's own sources"
            )
        return back if m[1] == _COMMON else f"{read_source(m[1])}\n{back}"

    return f'#line 1 "{path.name}"\n{INCLUDE.sub(expanded, text)}'


def source_name(source: str) -> str:
    """The name of a source in programs and messages: of another package's file, only the file's own."""
    return Path(source).name if Path(source).is_absolute() else source


def program_text(source: str, prelude: str = "") -> str:
    """Full program text: the types of include/common.cl, the generated prelude, the kernel's file."""
    return "".join(program_parts(source, prelude))


def program_parts(source: str, prelude: str = "") -> tuple[str, ...]:
    """`program_text` as separate pieces; only the prelude differs between launches of one kernel.

    The prelude follows the types of include/common.cl and precedes its empty default epilogue.
    """
    head, rest = _common()
    if not prelude:
        return head, f"{rest}\n\n", read_source(source)
    return head, f"{prelude}\n", f"{rest}\n", read_source(source)


@cache
def _common() -> tuple[str, str]:
    """include/common.cl split at its default epilogue."""
    head, marker, tail = read_source(_COMMON).partition("#ifndef EPILOGUE_PARAMS")
    return head, marker + tail


ARITHMETIC = {
    "mma/mma_instructions.cl": "matrix",
    "mma/wgmma_instructions.cl": "matrix",
    "integer/dot4.cl": "dot",
    "include/dot4_bytes.cl": "dot",
}
"""Files whose functions use matrix units, or dot products of 8-bit integers."""


@cache
def _files_of(name: str) -> frozenset[str]:
    """A `.cl` file and the files that it includes."""
    try:
        text = (FOLDER / name).read_text()
    except OSError:
        return frozenset()  # a kernel from outside the package
    return frozenset({name}).union(*(_files_of(m) for m in _INCLUDE.findall(text) if m != name))


def arithmetic_of(source: str, options: str) -> str:
    """The kind of arithmetic of a program: 'matrix', 'dot', 'fp16' or 'fp32'. source: its file below kernels/."""
    found = {ARITHMETIC[name] for name in _files_of(source) & ARITHMETIC.keys()}
    if "matrix" in found:
        return "matrix"
    defines = set(options.split())
    if "dot" in found and defines.isdisjoint(("-DDOT=0", "-DDOTS=0")):
        return "dot"
    return "fp16" if "-DACC_HALF=1" in defines else "fp32"


def option_text(defines: Mapping[str, Any]) -> str:
    """-D options in a fixed order, so that equal defines give equal programs.

    DOT=1 (cl_khr_integer_dot_product) adds -cl-std=CL3.0: Intel's CPU runtime declares those functions for no earlier
    language version.
    """
    named = [f"-D{k}={int(v) if isinstance(v, bool) else v}" for k, v in sorted(defines.items())]
    return " ".join([*named, *(["-cl-std=CL3.0"] if defines.get("DOT") == 1 else [])])
