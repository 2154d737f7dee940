"""Hopper features in OpenCL programs: retargets PTX to sm_90a for wgmma, and for local memory beyond 48 KiB.

NVIDIA's OpenCL compiler emits PTX for sm_90, for which ptxas refuses wgmma, and limits a work-group to 48 KiB. But the
driver accepts PTX with another target and larger variables. So kernels contain wgmma instructions as comments in inline
PTX, in which the compiler substitutes registers. `retarget` turns the comments into instructions. PTX ISA 9.0,
"Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

import re

from ..errors import OpaliteError

MARK = "//hopper"
"""Start of the comments `//hopper INSTRUCTION` and `//hopper-local NAME BYTES` (size of a local variable)."""

_TARGET = r"(?m)^(\.target sm_90)\b(?!a)"
_INSTRUCTION = r"//hopper (?=\S)"
_SIZE = r"//hopper-local (\w+) (\d+)"


class RetargetError(OpaliteError):
    """The text cannot be retargeted to sm_90a."""


def is_marked(source: str) -> bool:
    """Return whether a program, in OpenCL C or PTX, has Hopper instructions."""
    return MARK in source


def retarget(text: str) -> str:
    """The PTX `text` for sm_90a, with its Hopper comments as instructions. Raises RetargetError for another target."""
    text, count = re.subn(_TARGET, r"\1a", text)
    if count != 1:
        raise RetargetError("the program is not PTX for sm_90")
    for name, size in set(re.findall(_SIZE, text)):
        declaration = rf"^(\s*\.shared \.align \d+ \.b8 (?:\w+\$_)?{name})\[\d+\];"
        text, count = re.subn(declaration, rf"\1[{size}];", text, flags=re.MULTILINE)
        if count != 1:
            raise RetargetError(f"the program declares {count} local variables {name}, not one")
    return re.sub(_INSTRUCTION, "", text)
