"""Op: base class of canonical operators, with typed attributes, shape inference, NumPy reference and cost.

Kernels (`opalite.kernels`) compute an Op on a device, several for one operator (Paddle-Lite's OpLite and KernelLite).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

import numpy as np

from ..errors import InputError, ShapeError
from ..ir.dtype import DType
from ..ir.load_plugins import load_plugins
from ..ir.plugins import watch
from ..ir.symbols import always_equal, hint_of, int_or_symbolic, is_symbolic
from ..ir.tensor_type import TensorType

Types = Sequence["TensorType | None"]
Outs = Sequence[TensorType]
Array = np.ndarray[Any, Any]
Arrays = Sequence[Array | None]


@dataclass(frozen=True)
class Cost:
    """Work of one node: floating-point operations and the least bytes of memory traffic."""

    flops: float
    bytes: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


class Op:
    """One canonical operator with its attributes: a frozen dataclass, so that equal operators compare equal.

    Attributes are plain numbers, text, tuples of those, or other frozen dataclasses. Default values are omitted from
    text forms and keys.

    takes_epilogue: a node may have an epilogue, an Expr applied to output 0. Its operands $1, $2... are the node's
    inputs from `arity` on; $0 is the operator's own result. sums: the type of that result, if an epilogue may change
    the type.
    """

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str]  # set by `register_op`
    arity: ClassVar[int] = 1  # inputs of the operator itself, optional ones included
    takes_epilogue: ClassVar[bool] = False
    sums: ClassVar[DType | None] = None
    random: ClassVar[bool] = False  # never folded
    in_place: ClassVar[bool] = False  # output 0 shares the memory of input 0 and overwrites part of it
    float32_inputs: ClassVar[tuple[int, ...]] = ()  # inputs read in float32 unless they are halves already
    flops: ClassVar[float] = 1.0  # operations for each output element

    def check_shape(self, ins: Types) -> None:
        """Raise ShapeError if inputs and attributes do not fit together."""

    def infer_shape(self, ins: Types) -> list[TensorType]:
        """Types of the outputs, for checked inputs; by default one output of the type of input 0."""
        x = tensor(ins, 0, "x")
        return [TensorType(x.dtype, x.shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        """Outputs in plain NumPy: slow and simple, the reference for kernels' tests."""
        raise NotImplementedError

    def check_contents(self, ins: Types, arrays: Arrays) -> bool:
        """Raise ShapeError if constants would make a kernel read outside its tensors; returns whether it checked any.

        arrays: contents of the inputs, None for inputs that are not constant. Most kernels check their indices
        themselves.
        """
        return False

    def cost(self, ins: Types, outs: Outs) -> Cost:
        """Work estimate; by default `flops` for each output element."""
        return Cost(self.flops * sum(o.count for o in outs), moved_bytes(ins, outs))

    def attributes(self) -> dict[str, Any]:
        """Attributes by name, in order of declaration, without defaults."""
        given = ((f, getattr(self, f.name)) for f in fields(self))
        return {f.name: value for f, value in given if value != f.default}


_OPS: dict[str, type[Op]] = {}
_C = TypeVar("_C", bound=type[Op])


def register_op(cls: _C) -> _C:
    """Class decorator, above @dataclass(frozen=True): register the operator by the name of its class."""
    if not cls.__module__.startswith(f"{__package__}."):
        load_ops()  # so that a name clash is found
    if cls.__name__ in _OPS:
        raise ValueError(f"operator {cls.__name__} is registered twice")
    if not is_dataclass(cls):
        raise ValueError(f"operator {cls.__name__} is not a dataclass: add @dataclass(frozen=True) under @register_op")
    cls.name = cls.__name__
    _OPS[cls.name] = cls
    return cls


def withdraw_op(name: str) -> None:
    """Undo `register_op`."""
    del _OPS[name]


@dataclass_transform(frozen_default=True)
def frozen_op(cls: _C) -> _C:
    """Class decorator of this package's operators: a frozen dataclass with slots, registered."""
    return register_op(cast("_C", dataclass(frozen=True, slots=True)(cls)))


def get_op(name: str) -> type[Op]:
    """The operator called `name`; KeyError if there is none."""
    if name not in _OPS:
        load_ops()
        load_plugins()
    return _OPS[name]


def make_op(name: str, attributes: Mapping[str, Any]) -> Op:
    """The operator called `name` with attributes by name, as text and files hold them.

    Lists become tuples. KeyError for an unknown operator; InputError names a missing or unknown attribute.
    """
    cls = get_op(name)
    known = {f.name: f for f in fields(cls)}
    for key in attributes:
        if key not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"{name} has no attribute {key}; {there}")
    for key, f in known.items():
        if key not in attributes and f.default is MISSING:
            raise InputError(f"{name} needs the attribute {key}")
    return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in attributes.items()})


def all_ops() -> dict[str, type[Op]]:
    """Every operator by name."""
    load_plugins()
    return known_ops()


def known_ops() -> dict[str, type[Op]]:
    """This package's operators and those registered so far, by name."""
    load_ops()
    return dict(_OPS)


@cache
def load_ops() -> None:
    """Import every module of this folder."""
    folder = str(Path(__file__).parent)
    for name in sorted(m.name for m in pkgutil.iter_modules([folder])):
        import_module(f"{__package__}.{name}")


def load_op(module: str) -> None:
    """Import the module `module` of this folder, if it exists."""
    if module.isidentifier():
        with suppress(ModuleNotFoundError):
            import_module(f"{__package__}.{module}")


watch(_OPS.values)


def moved_bytes(ins: Types, outs: Outs) -> float:
    """Bytes of all inputs and outputs."""
    return 1.0 * sum(t.count * t.storage.size for t in (*ins, *outs) if t is not None)


def need(condition: object, expected: str) -> None:
    """Raise ShapeError(expected) unless `condition`."""
    if not condition:
        raise ShapeError(expected)


def tensor(ins: Types, i: int, what: str) -> TensorType:
    """Type of input `i`; ShapeError, calling it `what`, if it is absent."""
    t = ins[i] if i < len(ins) else None
    if t is None:
        raise ShapeError(f"input {i} ({what}) is missing")
    return t


def present(arrays: Arrays, count: int) -> list[Array]:
    """The first `count` of `arrays`; AssertionError if one is absent."""
    found = [a for a in arrays[:count] if a is not None]
    assert len(found) == count, f"{count} inputs are expected, got {len(found)}"
    return found


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """`axis` in [0, rank); ShapeError if it is outside [-rank, rank)."""
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(f"{what} {axis} is outside [-{rank}, {rank - 1}] for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcast of `shapes`; ShapeError names shapes that do not fit."""
    if is_symbolic(tuple(shapes)):
        return _broadcast_sizes(shapes)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise _no_broadcast(shapes) from None


def _broadcast_sizes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """`broadcast_shape` for symbolic sizes, by comparisons with guards."""
    rank = max(map(len, shapes))
    found: list[int] = []
    for axis in range(-rank, 0):
        size = 1
        for shape in shapes:
            d = shape[axis] if -axis <= len(shape) else 1
            if always_equal(d, size) or always_equal(d, 1):
                continue
            if always_equal(size, 1):
                size = d
            elif d != size and d != 1:
                if size != 1:
                    raise _no_broadcast(shapes)
                size = d
        found.append(size)
    return tuple(found)


def _no_broadcast(shapes: Sequence[tuple[int, ...]]) -> ShapeError:
    return ShapeError(f"shapes {', '.join(map(str, map(hint_of, shapes)))} do not broadcast together")


def make_type(dtype: DType, shape: Sequence[int]) -> TensorType:
    """A TensorType with a plain tuple of sizes."""
    return TensorType(dtype, tuple(int_or_symbolic(d) for d in shape))
