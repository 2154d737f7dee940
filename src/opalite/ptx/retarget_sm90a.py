"""What Hopper alone has, in the PTX of OpenCL programs: instructions of target sm_90a, and local memory beyond 48 KiB.

NVIDIA's OpenCL compiler writes PTX for sm_90, in whose name ptxas refuses wgmma, and gives a work-group 48 KiB. But
the driver takes the text that it gives for a program's binary back with another target in it, and with larger
variables. So kernels write what is refused as comments into their inline PTX, where the compiler puts registers into
their places, and this makes instructions of them. PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

import re

from ..errors import OpaliteError

MARK = "//hopper"
"""What such a comment begins with: `//hopper INSTRUCTION`, or `//hopper-local NAME BYTES`, a local variable's size."""

_TARGET = re.compile(r"^(\.target sm_90)\b(?!a)", re.MULTILINE)
_INSTRUCTION = re.compile(r"//hopper (?=\S)")
_SIZE = re.compile(r"//hopper-local (\w+) (\d+)")


class RetargetError(OpaliteError):
    """The text is not what can be changed to target sm_90a."""


def is_marked(source: str) -> bool:
    """Whether a program, in OpenCL C or PTX, has parts for Hopper."""
    return MARK in source


def retarget(text: str) -> str:
    """The PTX `text` of a program with its marked parts in force, for sm_90a. RetargetError where it is another's."""
    text, count = _TARGET.subn(r"\1a", text)
    if count != 1:
        raise RetargetError("the program is not PTX for sm_90")
    for name, size in set(_SIZE.findall(text)):
        declaration = rf"^(\s*\.shared \.align \d+ \.b8 (?:\w+\$_)?{name})\[\d+\];"
        text, count = re.subn(declaration, rf"\1[{size}];", text, flags=re.MULTILINE)
        if count != 1:
            raise RetargetError(f"the program declares {count} local variables {name}, not one")
    return _INSTRUCTION.sub("", text)
