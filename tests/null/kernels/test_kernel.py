"""What `register` refuses."""

from __future__ import annotations

import pytest

from opalite.kernels.kernel import Kernel, all_kernels, kernels_for, register
from opalite.ops.operator import all_ops


def declare(name: str, operator: str) -> type[Kernel]:
    return type(name, (Kernel,), {"op": operator, "source": "none.cl"})


def test_an_unknown_operator_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError) as refused:
        register(declare("SoftMaximum", "SoftMax"))
    assert str(refused.value).startswith(
        "kernel SoftMaximum computes 'SoftMax', not a canonical operator; is it Softmax? There are: Append, "
    )
    assert all(name in str(refused.value) for name in all_ops())
    assert not kernels_for("SoftMax")


def test_nothing_close_is_suggested_for_a_strange_name() -> None:
    with pytest.raises(ValueError, match="operator; There are"):
        register(declare("Strange", "Qqqqqq"))


def test_a_kernel_is_registered_once() -> None:
    kernel = next(all_kernels())
    with pytest.raises(ValueError, match="twice"):
        register(declare(kernel.name, kernel.op))


def test_kernels_come_by_rank() -> None:
    """Estimates that are equal go to the kernel of the lowest rank, wherever its file is in the alphabet."""
    names = [k.name for k in kernels_for("MatMul")]
    assert names.index("MatmulSkinnySplitK") < names.index("MatmulLocalTile")
    for op in all_ops():
        ranks = [k.rank for k in kernels_for(op)]
        assert ranks == sorted(ranks)
