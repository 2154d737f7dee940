"""Running an operator by its NumPy reference, a fused epilogue included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..expr.core import Expr, evaluate
from .base import Array, Attrs, Op


def run_reference(op: Op, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
    """Outputs of `op`; operands of an epilogue follow the operator's own inputs. Floating-point warnings are silent."""
    own_attrs: dict[str, Any] = dict(attrs)
    epilogue: Expr | None = own_attrs.pop("epilogue", None)
    with np.errstate(all="ignore"):
        if epilogue is None:
            return op.reference(own_attrs, arrays)
        outs = list(op.reference(own_attrs, arrays[: op.arity]))
        operands = [a for a in arrays[op.arity :] if a is not None]
        outs[0] = evaluate(epilogue, [outs[0], *operands], outs[0].shape)
    return outs
