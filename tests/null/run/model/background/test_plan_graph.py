"""The largest values of large constants, which planning in halves reads, are computed in parallel beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.ir.constants.lazy_array import LazyArray, largest
from opalite.ir.dtype import DType
from opalite.ir.graph import Graph, Node, Value
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.tensor_type import TensorType
from opalite.ops.matmul import MatMul
from opalite.run.model.background.plan_graph import compute_largest


def product(held: Any) -> Graph:
    """x by a constant, twice."""
    x, w = Value("x", TensorType(DType.FLOAT32, (2, 3))), Value("w", TensorType(DType.of(held), (3, 3)), held)
    y, z = (Value(name, TensorType(DType.FLOAT32, (2, 3))) for name in "yz")
    op = MatMul(trans_a=False, trans_b=False)
    graph = Graph("g")
    graph.inputs, graph.outputs = [x], [z]
    graph.nodes = [Node(op, [x, w], [y], name="a"), Node(op, [y, w], [z], name="b")]
    return graph


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("precision", list(Precision))
def test_each_is_read_once(precision: Precision, dtype: Any) -> None:
    reads = int(precision in (Precision.FP16, Precision.FP16_FAST) and dtype is np.float32)
    seen: list[int] = []

    def load() -> np.ndarray[Any, Any]:
        seen.append(1)
        return np.full((3, 3), -7, dtype)

    held = LazyArray(np.dtype(dtype), (3, 3), load)
    for _ in range(2):
        compute_largest(product(held), PrecisionPolicy(precision))
    assert len(seen) == reads
    assert product(held).nodes[0].input(1).cached_query(largest) == 7
    assert len(seen) == 1
    compute_largest(product(np.zeros((3, 3), np.float32)), PrecisionPolicy(precision))
