"""Reading `.cl` files and putting a launch's source text together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..ir.dtype import DType

_FOLDER = Path(__file__).parent

STORAGE = {
    DType.FLOAT32: 0,
    DType.FLOAT16: 1,
    DType.FLOAT64: 2,
    DType.INT32: 3,
    DType.INT64: 4,
    DType.UINT32: 5,
    DType.UINT64: 6,
    DType.BFLOAT16: 7,
    DType.INT8: 8,
    DType.UINT8: 9,
    DType.INT16: 10,
    DType.UINT16: 11,
}
"""The STORAGE define of include/common.cl for each element type that arithmetic kernels hold."""

ELEMENT = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""OpenCL type that moves an element of so many bytes, whatever it means."""


_COMMON = "include/common.cl"
_INCLUDE = re.compile(r'^#include "([\w/]+\.cl)"$', re.MULTILINE)


@cache
def read_source(name: str) -> str:
    """Text of the `.cl` file at a path below kernels/, `#include "FOLDER/NAME.cl"` lines replaced by those files.

    Every program begins with include/common.cl anyway, so a line that includes it again adds nothing.
    """
    return _INCLUDE.sub(lambda m: "" if m[1] == _COMMON else read_source(m[1]), (_FOLDER / name).read_text())


def program_text(source: str, prelude: str = "") -> str:
    """Full program: include/common.cl's types, the generated prelude, then the kernel's own file."""
    return "".join(program_parts(source, prelude))


def program_parts(source: str, prelude: str = "") -> tuple[str, ...]:
    """`program_text` in pieces, of which only the generated one is new to each launch.

    The prelude comes after include/common.cl's types but before its empty default epilogue.
    """
    head, rest = _common()
    if not prelude:
        return head, f"{rest}\n\n", read_source(source)
    return head, f"{prelude}\n", f"{rest}\n", read_source(source)


def prelude_guard(prelude: str) -> str:
    """include/common.cl with the prelude after its types but before its empty default epilogue."""
    head, rest = _common()
    return f"{head}{prelude}\n{rest}\n"


@cache
def _common() -> tuple[str, str]:
    """include/common.cl before and from its default epilogue on."""
    head, marker, tail = read_source(_COMMON).partition("#ifndef EPILOGUE_PARAMS")
    return head, marker + tail


def option_text(defines: Mapping[str, Any]) -> str:
    """-D options in a fixed order, so that equal defines are equal programs.

    cl_khr_integer_dot_product (DOT=1) is an extension of OpenCL 3.0, whose functions Intel's CPU runtime declares only
    for that language.
    """
    named = [f"-D{k}={int(v) if isinstance(v, bool) else v}" for k, v in sorted(defines.items())]
    return " ".join([*named, *(["-cl-std=CL3.0"] if defines.get("DOT") == 1 else [])])
