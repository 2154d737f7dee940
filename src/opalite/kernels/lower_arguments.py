"""Lowers launch arguments: from names to bound values, in the order of the kernel's declaration.

`lower` is the only place that does so. A caller implements `Memory`, which maps tensors, weights, scratch memory and
tables to its own handles. The declaration is read from the program text that is built. Therefore a wrong argument name,
type or address space is an error before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import KernelError
from ..ir.graph import Value
from ..ir.symbols import is_symbolic
from .kernel import Kernel
from .kernel_signature import SCALARS, Parameter, find_signature
from .launch import Arg, Launch, Local, PerShapeTable, Scratch, SymbolicTable, Table, Weight

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

    def of_weight(self, weight: Weight) -> tuple[M, np.dtype[Any]]:
        """The memory of a packed constant, and its element type."""

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
        raise KernelError(f"kernel {kernel.name}, {launch.entry} of {source}: {e}") from None


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
        _check_space(p, "image" if a.image else "global", f"the weights of {a.value!r}")
        found, dtype = memory.of_weight(a)
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
    raise ValueError(f"its parameter '{p}' reads {p.element}, and is given {what}, which holds {dtype}")


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
