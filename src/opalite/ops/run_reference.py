"""Runs an operator's NumPy reference and its epilogue."""

from __future__ import annotations

import numpy as np

from ..expr.expression import Expr, evaluate
from .operator import Array, Arrays, Op


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
