"""Parses a kernel's parameters from the program text that is built: names, address spaces, types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from .kernel_sources import program_parts
from .opencl_preprocessor import Preprocessed

_ACCESS = {"read_only", "write_only", "read_write"}
_QUALIFIERS = {"const", "restrict", "volatile", "private"} | _ACCESS
_SPACES = {"global", "local", "constant"}

SCALARS: Mapping[str, np.dtype[Any]] = {
    "char": np.dtype(np.int8),
    "uchar": np.dtype(np.uint8),
    "short": np.dtype(np.int16),
    "ushort": np.dtype(np.uint16),
    "int": np.dtype(np.int32),
    "uint": np.dtype(np.uint32),
    "long": np.dtype(np.int64),
    "ulong": np.dtype(np.uint64),
    "half": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
"""OpenCL's scalar types."""


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter.

    space: "global", "local" or "constant" for a pointer to elements of `type`; "image"; "" for a number by value.
    """

    name: str
    space: str
    type: str

    @cached_property
    def element(self) -> np.dtype[Any] | None:
        """The scalar type of a number or of the pointed-to element; None for others, such as structures."""
        return SCALARS.get(self.type.rstrip("0123456789"))

    @property
    def lanes(self) -> int:
        """Vector lanes of one element: 4 for `float4`."""
        digits = self.type[len(self.type.rstrip("0123456789")) :]
        return int(digits) if digits else 1

    def __str__(self) -> str:
        if self.space in ("", "image"):
            return f"{self.type} {self.name}"
        return f"{self.space} {self.type} *{self.name}"


@lru_cache(maxsize=4096)
def _find(parts: tuple[str, ...], options: tuple[tuple[str, str], ...], entry: str) -> tuple[Parameter, ...]:
    program = Preprocessed(parts, dict(options))
    found = program.find(re.compile(rf"^[^\n]*\bkernel\b[^;{{}}#]*?\bvoid\s+{entry}\s*\(", re.MULTILINE))
    if found is None:
        raise ValueError("there is no kernel of that name")
    match, (piece, at) = found
    inside = program.rest((piece, at + len(match[0])))
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", inside[: _closing(inside)], flags=re.DOTALL)
    text = program.expand(text, (piece, at))
    return tuple(_parameter(p) for p in text.split(",")) if text.strip() not in ("", "void") else ()


def _closing(text: str) -> int:
    """Index of the parenthesis that closes one opened before `text`."""
    depth = 1
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i
    raise ValueError("its parameter list is not closed")


def _parameter(text: str) -> Parameter:
    """One declaration, such as `global const float *restrict x`."""
    words = [w.removeprefix("__") for w in re.findall(r"\w+|\*", text)]
    words = [w for w in words if w not in _QUALIFIERS]
    pointer = words.count("*")
    spaces = [w for w in words if w in _SPACES]
    names = [w for w in words if w != "*" and w not in _SPACES]
    if names[:1] == ["unsigned"] and len(names) == 3:
        names = ["u" + names[1], names[2]]
    if len(names) != 2 or pointer > 1 or len(spaces) != pointer:
        raise ValueError(f"its parameter '{text.strip()}' cannot be read")
    space = spaces[0] if pointer else "image" if names[0].startswith("image") else ""
    return Parameter(names[1], space, names[0])


def find_signature(source: str, prelude: str, defines: Mapping[str, Any], entry: str) -> tuple[Parameter, ...]:
    """Parameters of kernel `entry` in the program of `source` (a `.cl` file), `prelude` and `defines`.

    ValueError with the cause if they cannot be parsed.
    """
    options = tuple((k, str(int(v) if isinstance(v, bool) else v)) for k, v in sorted(defines.items()))
    try:
        return _find(program_parts(source, prelude), options, entry)
    except ValueError as e:
        raise ValueError(f"the declaration of {entry} in {source} is not understood: {e}") from None
