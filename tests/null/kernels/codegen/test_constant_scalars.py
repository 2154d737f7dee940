"""Literals in generated code: layers that differ in their scales share a program."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.expr.expression import Expr, evaluate
from opalite.expr.trace_function import Sym, trace
from opalite.ir import FLAT, OPENCL, DeviceInfo, DType, Node, TensorType, Value, packed
from opalite.kernels.codegen.constant_scalars import lift_literals
from opalite.kernels.codegen.epilogue import packed_epilogue
from opalite.kernels.kernel import kernels_for
from opalite.ops.elementwise import Elementwise
from opalite.ops.matmul import MatMul

from ..conv.test_conv_plans import DEVICES

F32 = DType.FLOAT32


def requantized(scale: float, zero: int) -> Expr:
    """What a quantised layer does to its float sums: round to uint8, and back."""

    def through(x: Sym) -> Sym:
        q = ((x / scale).call("rint") + float(zero)).typed("saturate", DType.UINT8)
        return (q.cast(DType.INT32) - zero).cast(F32) * scale

    return trace(through, F32)


def cpu() -> DeviceInfo:
    return next(d for d in DEVICES if d.is_cpu)


@pytest.mark.parametrize(("scale", "zero"), [(0.037, 113), (0.5, 0), (1.0, 128), (3.25, 7)])
def test_lifted_literals_mean_the_same(scale: float, zero: int) -> None:
    expr = requantized(scale, zero)
    lifted, values = lift_literals(expr)
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * 20
    arrays = [v.data for v in values if v.data is not None]
    assert len(arrays) == len(values)
    np.testing.assert_array_equal(evaluate(lifted, [x, *arrays], x.shape), evaluate(expr, [x], x.shape))


def test_literals_of_float_functions_stay() -> None:
    expr = trace(lambda x: x * 0.7071 + 0.37, F32)
    assert lift_literals(expr) == (expr, [])


@pytest.mark.parametrize("pack", [1, 16])
def test_epilogues_with_other_scales_share_their_source(pack: int) -> None:
    made = []
    for scale, zero in ((0.037, 113), (0.0071, 99)):
        y = Value("y", TensorType(F32, (1, 32, 5, 7), OPENCL.with_layout(packed(pack) if pack > 1 else FLAT)))
        node = Node(MatMul(False, False), [None, None], [y], requantized(scale, zero), "test")
        made.append(packed_epilogue(node, cpu()))
    assert made[0].prelude == made[1].prelude
    assert made[0].args != made[1].args


def test_elementwise_launches_with_other_scales_share_their_source() -> None:
    kernel = next(k for k in kernels_for("Elementwise") if type(k).__name__ == "ElementwiseFlat")
    launches = []
    for scale, zero in ((0.037, 113), (0.0071, 99)):
        x, y = (Value(n, TensorType(F32, (3, 37), OPENCL.with_layout(FLAT))) for n in "xy")
        node = Node(Elementwise(requantized(scale, zero), (3, 37)), [x], [y], name="test")
        launches += kernel.launch(kernel.problem(node, cpu()), kernel.defaults(kernel.problem(node, cpu())))
    assert launches[0].prelude == launches[1].prelude
    assert launches[0].defines == launches[1].defines
