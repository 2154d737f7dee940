"""Elementwise, an expression of broadcast inputs, and PlaceCast; operators' references with an epilogue."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..expr.expression import Expr, evaluate
from ..expr.function_table import find_function
from ..ir.graph import Node, Value
from ..ir.tensor_type import Shape, TensorType
from .operator import (
    Array,
    Arrays,
    Cost,
    Op,
    Outs,
    Types,
    broadcast_shape,
    frozen_op,
    make_type,
    moved_bytes,
    present,
    tensor,
)


@frozen_op
class Elementwise(Op):
    """y = expr(x0, x1, ...) at every position, with NumPy broadcasting.

    Attributes: expr (Expr); shape (optional): the output's shape, if larger than the inputs' broadcast (Expand,
    ConstantOfShape, Range).
    """

    expr: Expr
    shape: Shape | None = None

    def check_shape(self, ins: Types) -> None:
        expr = self.expr
        if len(ins) < len(expr.dtypes):  # formatting the expression is slow; do it on errors only
            raise ShapeError(f"expression '{expr}' needs {len(expr.dtypes)} inputs, got {len(ins)}")
        for i, want in enumerate(expr.dtypes):
            if (t := tensor(ins, i, "an operand")).dtype is not want:
                raise ShapeError(f"operand ${i} of '{expr}' is {want}, got {t}")
        for instr in expr.instrs:
            kind = expr.ref_dtype(instr.args[0])
            if not find_function(instr.fn).takes(kind):
                raise ShapeError(f"'{instr.fn}' of '{expr}' has no meaning on {kind.short}: cast what it takes")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        shapes = [t.shape for t in ins if t is not None]
        if self.shape is not None:
            shapes.append(self.shape)
        return [make_type(self.expr.dtype, broadcast_shape(shapes))]

    def reference(self, arrays: Arrays) -> list[Array]:
        present = [a for a in arrays if a is not None]
        shapes = [a.shape for a in present]
        if self.shape is not None:
            shapes.append(self.shape)
        return [evaluate(self.expr, present, broadcast_shape(shapes))]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(1.0 * outs[0].count * max(1, len(self.expr)), moved_bytes(ins, outs))


@frozen_op
class PlaceCast(Op):
    """The same tensor in another place: a host-device transfer, layout conversion or storage precision cast.

    Only the cast pass creates it. The input and output types hold all parameters.
    """

    def reference(self, arrays: Arrays) -> list[Array]:
        return present(arrays, 1)


def place_cast(x: Value, y: Value) -> Node:
    """A node that converts `x` to `y`, a value of the same type in another place."""
    return Node(PlaceCast(), [x], [y], name=x.name)


def run_reference(op: Op, epilogue: Expr | None, arrays: Arrays) -> list[Array]:
    """Outputs of `op` by its reference, epilogue included; its operands follow the operator's own inputs.

    Floating-point warnings are suppressed.
    """
    with np.errstate(all="ignore"):
        if epilogue is None:
            return op.reference(arrays)
        outs = list(op.reference(arrays[: op.arity]))
        operands = [a for a in arrays[op.arity :] if a is not None]
        outs[0] = evaluate(epilogue, [outs[0], *operands], outs[0].shape)
    return outs
