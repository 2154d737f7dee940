"""Lowers launch arguments: from names to bound values, in the order of the kernel's declaration.

`lower` is the only place that does so. A caller implements `Memory`, which maps tensors, weights, scratch memory and
tables to its own handles. The declaration is read from the program text that is built. Therefore a wrong argument name,
type or address space is an error before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import KernelError
from ..ir.graph import Value
from ..ir.symbols import is_symbolic
from .kernel import Kernel
from .kernel_sources import program_parts, source_name
from .launch import Arg, Launch, Local, PerShapeTable, Scratch, SymbolicTable, Table, Weight
from .opencl_preprocessor import Preprocessed

TEXEL_BUFFER = "image1d_buffer_t"
"""The parameter type of a constant that is read as texels of four 32-bit words, 16 bytes each, of its buffer."""

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
    is_read: whether it is memory that the kernel does not write.
    """

    name: str
    space: str
    type: str
    is_read: bool = False

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
    found = program.find(declaration(entry))
    if found is None:
        raise ValueError("there is no kernel of that name")
    match, (piece, at) = found
    inside = program.head((piece, at + len(match[0])))
    text = program.expand(inside[: _closing(inside)], (piece, at))
    return tuple(_parameter(p) for p in text.split(",")) if text.strip() not in ("", "void") else ()


def declaration(entry: str) -> re.Pattern[str]:
    """Matches the beginning of the kernel `entry`, up to its parameters."""
    return re.compile(rf"^[^\n]*\b(?:__)?kernel\b[^;{{}}#]*?\bvoid\s+{entry}\s*\(", re.MULTILINE)


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
    is_read = "const" in words or "constant" in words or "read_only" in words
    words = [w for w in words if w not in _QUALIFIERS]
    pointer = words.count("*")
    spaces = [w for w in words if w in _SPACES]
    names = [w for w in words if w != "*" and w not in _SPACES]
    if names[:1] == ["unsigned"]:
        names = [f"u{names[1]}" if len(names) == 3 else "uint", names[-1]]
    if len(names) != 2 or pointer > 1 or len(spaces) != pointer:
        raise ValueError(f"its parameter '{text.strip()}' cannot be read")
    space = spaces[0] if pointer else "image" if names[0].startswith("image") else ""
    return Parameter(names[1], space, names[0], is_read and space != "")


def find_signature(source: str, prelude: str, defines: Mapping[str, Any], entry: str) -> tuple[Parameter, ...]:
    """Parameters of kernel `entry` in the program of `source` (a `.cl` file), `prelude` and `defines`.

    ValueError with the cause if they cannot be parsed.
    """
    options = tuple((k, str(int(v) if isinstance(v, bool) else v)) for k, v in sorted(defines.items()))
    try:
        return _find(program_parts(source, prelude), options, entry)
    except ValueError as e:
        raise ValueError(f"the declaration of {entry} in {source_name(source)} is not understood: {e}") from None


def find_parameters(text: str, options: str, entry: str) -> tuple[Parameter, ...]:
    """Parameters of kernel `entry` in a program's full text, built with `options`.

    ValueError if they are not understood.
    """
    defines = (o.removeprefix("-D").partition("=") for o in options.split() if o.startswith("-D"))
    return _find((text,), tuple((name, value or "1") for name, _, value in defines), entry)


M = TypeVar("M", covariant=True)
_LIMITS = {t: (np.iinfo(t).min, np.iinfo(t).max) for t in SCALARS.values() if t.kind != "f"}


@dataclass(frozen=True)
class SymbolicNumber:
    """A scalar argument that depends on symbolic sizes (SymbolicInt or SymbolicFloat), and its declared type."""

    value: Any
    dtype: np.dtype[Any]


class Memory(Protocol[M]):
    """Maps memory arguments to handles of type M. Equal arguments must get the same handle."""

    def of_value(self, value: Value) -> M:
        """The memory of a graph tensor; a constant in its stored form."""

    def of_weight(self, weight: Weight, texels: bool) -> tuple[M, np.dtype[Any]]:
        """The memory of a packed constant, or that memory read as texels, and its element type."""

    def of_scratch(self, scratch: Scratch) -> M:
        """Scratch memory that lives during one node."""

    def of_table(self, name: str, table: Table) -> M:
        """A constant buffer with the contents of `table`."""


def lower(kernel: Kernel, launch: Launch, memory: Memory[M]) -> tuple[M | Local | np.generic | SymbolicNumber, ...]:
    """The arguments of `launch` in declaration order.

    Numbers are converted to the declared types. KernelError if names, types or address spaces do not match.
    """
    source = launch.source or kernel.source
    try:
        parameters = find_signature(source, launch.prelude, launch.defines, launch.entry)
        return tuple(_lower(p, a, memory) for p, a in _pairs(parameters, launch.args))
    except ValueError as e:
        raise KernelError(f"kernel {kernel.name}, {launch.entry} of {source_name(source)}: {e}") from None


def names_of(kernel: Kernel, launch: Launch) -> list[str]:
    """Argument names in the order of `lower`'s result."""
    source = launch.source or kernel.source
    return [p.name for p in find_signature(source, launch.prelude, launch.defines, launch.entry)]


def _pairs(parameters: tuple[Parameter, ...], args: Mapping[str, Arg]) -> list[tuple[Parameter, Arg]]:
    """Each parameter with its argument, in order."""
    declared = [p.name for p in parameters]
    missing = [name for name in declared if name not in args]
    unknown = [name for name in args if name not in declared]
    if missing or unknown:
        parts = [f"nothing is given for {', '.join(missing)}"] if missing else []
        parts += [f"{', '.join(unknown)} given, which it does not declare"] if unknown else []
        raise ValueError(f"{'; '.join(parts)}; it declares ({', '.join(map(str, parameters))})")
    return [(p, args[p.name]) for p in parameters]


def _lower(p: Parameter, a: Arg, memory: Memory[M]) -> M | Local | np.generic | SymbolicNumber:
    if isinstance(a, Value):
        _check_space(p, "image" if a.type.layout.is_image else "global", f"tensor {a!r}")
        _check_element(p, a.type.storage.np, f"tensor {a!r}")
        return memory.of_value(a)
    if isinstance(a, Weight):
        as_texels = p.type == TEXEL_BUFFER and not a.image
        _check_space(p, "image" if a.image or as_texels else "global", f"the weights of {a.value!r}")
        found, dtype = memory.of_weight(a, as_texels)
        if as_texels and dtype != np.uint32:
            raise ValueError(f"its parameter '{p}' reads texels of uint32, and is given weights of {dtype}")
        if dtype.kind != "u":  # unsigned words that the kernel unpacks itself
            _check_element(p, dtype, f"weights in the form {a.form}")
        return found
    if isinstance(a, Scratch):
        _check_space(p, "global", f"scratch memory '{a.name}'")
        return memory.of_scratch(a)
    if isinstance(a, Local):
        _check_space(p, "local", "local memory")
        return a
    if isinstance(a, np.ndarray | SymbolicTable | PerShapeTable):
        _check_space(p, "global", f"a table of {a.dtype}")
        _check_element(p, a.dtype, f"a table of {a.dtype}")
        return memory.of_table(p.name, a)
    return _number(p, a)


def _check_space(p: Parameter, space: str, what: str) -> None:
    if p.space != space and not (space == "global" and p.space == "constant"):
        kinds = {
            "": "a number",
            "image": "an image",
            "global": "a buffer",
            "constant": "a buffer",
            "local": "local memory",
        }
        raise ValueError(f"its parameter '{p}' takes {kinds[p.space]}, and is given {what}")


def _check_element(p: Parameter, dtype: np.dtype[Any], what: str) -> None:
    """ValueError unless the declared element type matches; unsigned integers may read any bits."""
    if p.space == "image" or p.element is None or p.element == dtype:
        return
    if p.element.kind == "u" or (p.element.kind == "i" and dtype.kind in "iub" and p.lanes * p.element.itemsize >= 4):
        return
    raise ValueError(
        f"its parameter '{p}' reads {p.element}, and is given {what}, which holds {dtype}; declare it as REAL, "
        "defined by STORAGE, or refuse the node"
    )


def _number(p: Parameter, a: int | float | np.generic) -> np.generic | SymbolicNumber:
    if p.space:
        raise ValueError(f"its parameter '{p}' takes memory, and is given the number {a}")
    dtype = p.element
    if dtype is None or p.lanes > 1:
        raise ValueError(f"its parameter '{p}' is of a type that cannot be passed by value")
    if isinstance(a, np.generic):
        if a.dtype != dtype:
            raise ValueError(f"its parameter '{p}' is given {a!r} of type {a.dtype}")
        return a
    if isinstance(a, float) != (dtype.kind == "f"):
        raise ValueError(
            f"its parameter '{p}' is given {a!r}, which is {'no' if isinstance(a, float) else 'an'} integer"
        )
    if dtype.kind != "f" and not _LIMITS[dtype][0] <= a <= _LIMITS[dtype][1]:
        raise ValueError(f"its parameter '{p}' is given {a}, which {dtype} does not hold")
    if is_symbolic(a):
        return SymbolicNumber(a, dtype)
    number: np.generic = dtype.type(a)
    return number
