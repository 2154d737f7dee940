"""What epilogues make of the lanes past the last channel."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.ir.place import packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.codegen.epilogue import keeps_zeros
from opalite.kernels.kernel import Binding

ATTRS = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
BLOCKS = packed(16)


def conv(chain: str | None, operand: np.ndarray | None = None, constant: bool = False) -> Node:
    """A pointwise convolution of 5 channels to 7 with an epilogue."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((1, 5, 4, 4), (7, 5, 1, 1), (7,))]
    arrays += [] if operand is None else [operand]
    layout = None if operand is None or constant else BLOCKS
    binding = Binding((BLOCKS, None, None, *([] if operand is None else [layout])), (BLOCKS,))
    attrs = ATTRS | ({} if chain is None else {"epilogue": parse_expr(chain, [DType.FLOAT32] * (len(arrays) - 2))})
    return make_node("Conv", attrs, arrays, const=(1, 2, 3) if constant else (1, 2), binding=binding)


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (None, True),
        ("max($0, 0.0)", True),
        ("max($0, 0.0); min(%0, 6.0)", True),
        ("sigmoid($0)", False),
        ("add($0, 1.0)", False),
    ],
)
def test_chains_of_the_sum_alone(chain: str | None, expected: bool) -> None:
    assert keeps_zeros(conv(chain)) is expected


def test_operands() -> None:
    like_y, by_channel, scalar = np.ones((1, 7, 4, 4), np.float32), np.ones((7, 1, 1), np.float32), np.float32([2])
    assert keeps_zeros(conv("add($0, $1)", like_y))
    assert not keeps_zeros(conv("add($0, $1)", by_channel, constant=True)), (
        "what lies past its last channel is not known"
    )
    assert keeps_zeros(conv("mul($0, $1)", scalar, constant=True))
    assert not keeps_zeros(conv("add($0, $1)", scalar, constant=True))
