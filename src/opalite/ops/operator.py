"""What a canonical operator is: typed attributes, shape check, shape inference, NumPy reference and cost.

An Op computes nothing on a device; kernels do (`opalite.kernels`), so that an operator is written once and any
number of kernels can serve it (Paddle-Lite's OpLite and KernelLite).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from ..errors import InputError, ShapeError
from ..ir.dtype import DType
from ..ir.plugins import watch
from ..ir.symbols import always_equal, hint_of, is_symbolic, same_or_int
from ..ir.tensor_type import TensorType

Types = Sequence["TensorType | None"]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cost:
    """Work of one node: floating-point operations and bytes that must move at least."""

    flops: float
    bytes: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


class Op:
    """One canonical operator with its attributes: a frozen dataclass, so that equal operators compare equal.

    Attributes are plain numbers, text, tuples of those, or other frozen dataclasses. One that has a default is left out
    of text forms and keys where it has that value.
    `takes_epilogue` says that a node of the operator may have an epilogue: an Expr applied to output 0, whose operands
    $1, $2... are the node's inputs from `arity` on ($0 is the operator's own result). `sums` is the type of that result
    where an epilogue may turn it into another type.
    """

    __slots__ = ()

    name: ClassVar[str]  # of the class; `register_op` sets it
    arity: ClassVar[int] = 1  # inputs of the operator itself, optional ones included
    takes_epilogue: ClassVar[bool] = False
    sums: ClassVar[DType | None] = None
    random: ClassVar[bool] = False  # never folded
    in_place: ClassVar[bool] = False  # output 0 is the memory of input 0, of which a part is written anew
    kept_wide: ClassVar[tuple[int, ...]] = ()  # inputs that are read in float32 where they are not halves already

    def check_shape(self, ins: Types) -> None:
        """Raise ShapeError if inputs and attributes do not fit together."""

    def infer_shape(self, ins: Types) -> list[TensorType]:
        """Types of the outputs for checked inputs."""
        raise NotImplementedError

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        """Outputs in plain NumPy: slow, obvious, and what every kernel is tested against."""
        raise NotImplementedError

    def check_contents(self, ins: Types, arrays: Sequence[Array | None]) -> bool:
        """Raise ShapeError if the contents of constants would have a kernel read outside of its tensors. Whether there
        was anything to look at. arrays: the contents of the inputs, None for one that is no constant.

        Most kernels check the positions that they are given themselves."""
        return False

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """Work estimate; by default one operation for each output element."""
        return Cost(1.0 * sum(o.count for o in outs), moved_bytes(ins, outs))

    def attributes(self) -> dict[str, Any]:
        """Attributes by name, in order of declaration, but for those that have their default value."""
        given = ((f, getattr(self, f.name)) for f in fields(cast(Any, self)))
        return {f.name: value for f, value in given if value != f.default}


_OPS: dict[str, type[Op]] = {}
_C = TypeVar("_C", bound=type[Op])


def register_op(cls: _C) -> _C:
    """Class decorator, above @dataclass(frozen=True): make the operator known under the name of its class."""
    if not cls.__module__.startswith(f"{__package__}."):
        load_ops()  # whose names are taken
    if cls.__name__ in _OPS:
        raise ValueError(f"operator {cls.__name__} is registered twice")
    if not is_dataclass(cls):
        raise ValueError(f"operator {cls.__name__} is not a dataclass: add @dataclass(frozen=True) under @register_op")
    cls.name = cls.__name__
    _OPS[cls.name] = cls
    return cls


def get_op(name: str) -> type[Op]:
    """The operator called `name`; KeyError if there is none."""
    if name not in _OPS:
        load_ops()
    return _OPS[name]


def make_op(name: str, attributes: Mapping[str, Any]) -> Op:
    """The operator called `name` with attributes that are known by name only, as text and files have them.

    Lists become tuples. KeyError if there is no such operator; InputError names an attribute that is missing, or that
    the operator does not have.
    """
    cls = get_op(name)
    known = {f.name: f for f in fields(cast(Any, cls))}
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
    load_ops()
    return dict(_OPS)


@cache
def load_ops() -> None:
    """Import every module of this folder."""
    folder = str(Path(__file__).parent)
    for name in sorted(m.name for m in pkgutil.iter_modules([folder])):
        import_module(f"{__package__}.{name}")


def load_op(module: str) -> None:
    """Import the module of that name in this folder, if there is one."""
    if module.isidentifier():
        with suppress(ModuleNotFoundError):
            import_module(f"{__package__}.{module}")


watch(_OPS.values)


def moved_bytes(ins: Types, outs: Sequence[TensorType]) -> float:
    """Bytes of all inputs and outputs."""
    return 1.0 * sum(t.count * t.storage.size for t in (*ins, *outs) if t is not None)


def need(condition: object, expected: str) -> None:
    """ShapeError(expected) unless `condition`."""
    if not condition:
        raise ShapeError(expected)


def tensor(ins: Types, i: int, what: str) -> TensorType:
    """Input `i`, or a ShapeError calling it `what`."""
    t = ins[i] if i < len(ins) else None
    if t is None:
        raise ShapeError(f"input {i} ({what}) is missing")
    return t


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """`axis` in [0, rank); ShapeError if it lies outside [-rank, rank)."""
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(f"{what} {axis} is outside [-{rank}, {rank - 1}] for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcast of `shapes`; ShapeError names the shapes that do not fit."""
    if is_symbolic(tuple(shapes)):
        return _broadcast_sizes(shapes)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise _no_broadcast(shapes) from None


def _broadcast_sizes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The same where some are symbols: what NumPy would turn into plain numbers is compared."""
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
    return TensorType(dtype, tuple(same_or_int(d) for d in shape))
