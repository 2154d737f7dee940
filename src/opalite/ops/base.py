"""What a canonical operator is: attributes, shape check, shape inference, NumPy reference and cost.

An Op computes nothing on a device; kernels do (`opalite.kernels`), so that an operator is written once and any
number of kernels can serve it (Paddle-Lite's OpLite and KernelLite).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..errors import ShapeError
from ..ir.dtype import DType
from ..ir.types import TensorType

Attrs = Mapping[str, Any]
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
    """One canonical operator. Subclasses are stateless; `register_op` makes the one instance.

    `takes_epilogue` says that attrs["epilogue"] may hold an Expr applied to output 0, whose operands $1, $2... are
    the node's inputs from `arity` on ($0 is the operator's own result). `sums` is the type of that result where an
    epilogue may turn it into another type.
    """

    name: ClassVar[str]
    arity: ClassVar[int] = 1  # inputs of the operator itself, optional ones included
    takes_epilogue: ClassVar[bool] = False
    sums: ClassVar[DType | None] = None
    random: ClassVar[bool] = False  # never folded

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        """Raise ShapeError if inputs and attributes do not fit together."""

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        """Types of the outputs for checked inputs."""
        raise NotImplementedError

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        """Outputs in plain NumPy: slow, obvious, and what every kernel is tested against."""
        raise NotImplementedError

    def cost(self, attrs: Attrs, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """Work estimate; by default one operation for each output element."""
        return Cost(float(sum(o.count for o in outs)), moved_bytes(ins, outs))

    def __repr__(self) -> str:
        return self.name


_OPS: dict[str, Op] = {}
_C = TypeVar("_C", bound=type[Op])


def register_op(cls: _C) -> _C:
    """Class decorator: make the operator known under its name."""
    if cls.name in _OPS:
        raise ValueError(f"operator {cls.name} is registered twice")
    _OPS[cls.name] = cls()
    return cls


def get_op(name: str) -> Op:
    """The operator called `name`; KeyError if there is none."""
    return _OPS[name]


def all_ops() -> dict[str, Op]:
    """Every operator by name."""
    return dict(_OPS)


def moved_bytes(ins: Types, outs: Sequence[TensorType]) -> float:
    """Bytes of all inputs and outputs."""
    return float(sum(t.count * t.storage.size for t in (*ins, *outs) if t is not None))


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
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"shapes {', '.join(map(str, shapes))} do not broadcast together") from None


def make_type(dtype: DType, shape: Sequence[int]) -> TensorType:
    """A TensorType with a plain tuple of ints."""
    return TensorType(dtype, tuple(int(d) for d in shape))
