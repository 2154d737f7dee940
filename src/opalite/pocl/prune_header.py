"""Spares PoCL the reading of its header: each program is given the declarations that it names.

PoCL parses 18,000 lines of declarations in front of every program, which takes longer than most kernels. The header has
an include guard, so that a program can switch it off and bring its own part of it: all overloads of every function
whose name it holds. A name that was missed (made by pasting) is an error in OpenCL C, never another function; the
caller then builds the program the ordinary way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

from .avoid_recompile import PRELUDE, mark_kernels

T = TypeVar("T")
GUARD = "_OPENCL_H_"
# PoCL's own cache, where a user has set its folder, is keyed by the options: raise the number when kernels of earlier
# versions must not be loaded.
OPTION = f"-D{GUARD}=2"
_FILES = ("opencl-c-base.h", "opencl-c.h")
# From the folder of libpocl: the wheel of PyPI, a prefix of one's own, a distribution's multi-architecture folders.
_FOLDERS = ("../../pocl_binary_distribution/.libs/share", "../share", "../../share")
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"/\*[\s\S]*?\*/|//(?:.*\\\n)*.*")
# Kernels paste the types of these together.
_CONVERSION = re.compile(r"convert_u?(?:char|short|int|long|float|double)(?:2|4|8|16)?")


class PrunedHeader:
    """The parts of PoCL's header."""

    def __init__(self, folder: Path) -> None:
        """OSError if the header is not in `folder`, ValueError if it is not as expected."""
        self._base, whole = ((folder / name).read_text(encoding="utf-8") for name in _FILES)
        if f"#ifndef {GUARD}" not in whole:
            raise ValueError(f"no {GUARD} in {folder}")
        self._parts = _split(whole)
        self._names = {name for name, _ in self._parts}
        self._always = {name for name in self._names if name in ("", "__attribute__") or _CONVERSION.fullmatch(name)}

    def program(self, text: str, options: str) -> tuple[str, str]:
        """(source, options) of a program with the declarations that `text` needs in front, compiled once
        (avoid_recompile.py)."""
        marked = mark_kernels(text)
        prelude = PRELUDE if marked != text else ""
        names = frozenset(self._names.intersection(_WORD.findall(prelude + marked)))
        return f"{self._select(names)}\n{prelude}\n#line 1\n{marked}", f"{OPTION} {options}"

    @lru_cache(maxsize=64)  # noqa: B019 - lives as long as the process
    def _select(self, names: frozenset[str]) -> str:
        wanted = names | self._always
        parts = "\n".join(text for name, text in self._parts if name in wanted)
        # The last line is what PoCL, too, puts behind the header, which enables double among others.
        return f"{self._base}\n#undef {GUARD}\n{parts}\n#pragma OPENCL EXTENSION all : disable"


def _split(text: str) -> list[tuple[str, str]]:
    """(function, declaration), or ("", line for the preprocessor), in the order of a header."""
    found: list[tuple[str, str]] = []
    begun = ""
    for line in map(str.rstrip, _COMMENT.sub("", text).splitlines()):
        if begun:
            line = f"{begun}\n{line}"
        elif not line or line.startswith("#include"):
            continue
        if line.endswith("\\") or not (line.endswith(";") or line.startswith("#")):
            begun = line
            continue
        begun = ""
        found.append(("" if line[0] == "#" else line.partition("(")[0].split()[-1], line))
    return found


@cache
def find_header() -> PrunedHeader | None:
    """The header of the PoCL that this process has loaded, once there is a context; None where it is not found."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for library in {line.split()[-1] for line in maps.splitlines() if "/libpocl" in line}:
        for share in _FOLDERS:
            try:
                return PrunedHeader(Path(library).parent / share / "pocl" / "include")
            except (OSError, ValueError):
                continue
    return None


def build_with_pruned_header(make: Callable[[str, str], T], text: str, options: str, failure: type[Exception]) -> T:
    """`make(text, options)` for PoCL: with the declarations that `text` needs, or with all if that raises `failure`."""
    header = find_header()
    if header is not None:
        try:
            return make(*header.program(text, options))
        except failure:
            pass  # what is wrong, if anything, is for the ordinary build to say
    return make(text, options)
