"""What is the product's own: sums that a tensor is added to, clamps, and what it leaves to other kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.trace_function import Sym, trace
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

F32 = DType.FLOAT32
RNG = np.random.default_rng(3)


def noise(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def general(op: str) -> Any:
    return next(k for k in kernels_for(op) if k.name == {"Conv": "ConvGeneric", "MatMul": "MatmulGeneric"}[op])


def residual(v: Sym, r: Sym) -> Sym:
    return (v + r).call("max", -1.0).call("min", 2.0)


@pytest.mark.parametrize("size", [(7, 7), (3, 29), (1, 5), (16, 16)])
def test_a_convolution_adds_a_tensor_and_clamps(rt: Runtime, size: tuple[int, int]) -> None:
    x, w, b, r = noise(2, 5, *size), noise(7, 5, 3, 3), noise(7), noise(2, 7, *size)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    node = make_node("Conv", {**attrs, "epilogue": trace(residual, F32, F32)}, [x, w, b, r], const=(1, 2))
    kernel = general("Conv")
    assert kernel.refuse(kernel.problem(node, rt.info)) is None
    plain = make_node("Conv", attrs, [x, w, b])
    want = np.clip(plain.op.reference([x, w, b])[0] + r, -1, 2)
    np.testing.assert_allclose(run_node(rt, kernel, node, [x, w, b, r])[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(3, 5), (9, 70), (4, 133), (12, 19)])
@pytest.mark.parametrize("pad", [0, 1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_y_that_are_shorter_or_longer_than_those_of_x(
    rt: Runtime, size: tuple[int, int], pad: int, stride: int
) -> None:
    """Vectors end with the row where x has other columns than y, and go on where it has as many."""
    x, w, b = noise(2, 3, *size), noise(6, 3, 3, 3), noise(6)
    attrs = {"strides": (1, stride), "pads": (pad,) * 4, "dilations": (1, 1), "group": 1}
    node = make_node("Conv", attrs, [x, w, b], const=(1, 2))
    want = node.op.reference([x, w, b])[0]
    np.testing.assert_allclose(run_node(rt, general("Conv"), node, [x, w, b])[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("rows", [1, 13])
@pytest.mark.parametrize("added", [(37,), (1, 37), (1,), "y"])
def test_a_product_adds_a_row_an_element_or_a_tensor(rt: Runtime, added: Any, rows: int, trans_b: bool) -> None:
    a, b = noise(2, rows, 19), noise(*((37, 19) if trans_b else (19, 37)))
    r = noise(*((2, rows, 37) if added == "y" else added))
    epilogue = trace(residual, F32, F32)
    attrs = {"trans_a": False, "trans_b": trans_b, "epilogue": epilogue}
    node = make_node("MatMul", attrs, [a, b, r], const=(1, 2))
    kernel = general("MatMul")
    assert kernel.refuse(kernel.problem(node, rt.info)) is None
    want = np.clip(a @ (b.T if trans_b else b) + r, -1, 2)
    np.testing.assert_allclose(run_node(rt, kernel, node, [a, b, r])[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("added", [(7, 1, 1), (1, 1, 9)])
def test_what_is_broadcast_otherwise_is_refused(rt: Runtime, added: tuple[int, ...]) -> None:
    """A row along the width is not one along all positions."""
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    attrs["epilogue"] = trace(residual, F32, F32)
    node = make_node("Conv", attrs, [noise(1, 5, 3, 9), noise(7, 5, 3, 3), None, noise(*added)], const=(1,))
    kernel = general("Conv")
    assert "broadcast" in (kernel.refuse(kernel.problem(node, rt.info)) or "")


def test_other_epilogues_are_refused(rt: Runtime) -> None:
    for chain in (lambda v, r: v * r, lambda v, r: v.call("max", 0.0) + r, lambda v, r: (v + r).call("sigmoid")):
        attrs = {"trans_a": False, "trans_b": False, "epilogue": trace(chain, F32, F32)}
        node = make_node("MatMul", attrs, [noise(3, 5), noise(5, 7), noise(3, 7)])
        kernel = general("MatMul")
        assert kernel.refuse(kernel.problem(node, rt.info)) is not None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_where_it_is(rt: Runtime, value: float) -> None:
    """A clamp hands NaN on, and a window that does not see the element is not touched by it."""
    x, w = noise(1, 3, 9, 11), noise(5, 3, 3, 3)
    x[0, 1, 4, 5] = value
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    node = make_node("Conv", attrs, [x, w, None], const=(1,))
    got = run_node(rt, general("Conv"), node, [x, w, None])[0]
    bad = ~np.isfinite(got[0])
    assert bad[:, 3:6, 4:7].all()
    assert bad.sum() == 5 * 9


@pytest.mark.parametrize("stride", [(2, 2), (1, 3), (5, 2)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 0, 3), (-1, 0, 2, -2)])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("group", [1, 3])
def test_strides_read_split_rows_and_columns(
    rt: Runtime, group: int, dilation: int, pads: tuple[int, ...], stride: tuple[int, int]
) -> None:
    x, w, b = noise(2, 6, 13, 37), noise(9, 6 // group, 3, 2), noise(9)
    attrs = {"strides": stride, "pads": pads, "dilations": (dilation, dilation), "group": group}
    node = make_node("Conv", attrs, [x, w, b], const=(1, 2))
    want = node.op.reference([x, w, b])[0]
    np.testing.assert_allclose(run_node(rt, general("Conv"), node, [x, w, b])[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 1), (4, 5)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 2, 1), (-1, 1, 0, -2)])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 3])
def test_remainders_of_a_transposed_convolution(
    rt: Runtime, group: int, dilation: int, pads: tuple[int, ...], stride: tuple[int, int]
) -> None:
    """Also where a remainder has no tap, whose outputs are the bias, and strides that share factors with dilations."""
    x, w, b = noise(2, 6, 5, 11), noise(6, 5, 4, 3), noise(5 * group)
    extra = tuple(s - 1 for s in stride)
    attrs = {"strides": stride, "pads": pads, "dilations": (dilation, dilation), "group": group}
    node = make_node("ConvTranspose", {**attrs, "output_padding": extra}, [x, w, b], const=(1, 2))
    want = node.op.reference([x, w, b])[0]
    kernel = next(k for k in kernels_for("ConvTranspose") if k.tier == "generic")
    np.testing.assert_allclose(run_node(rt, kernel, node, [x, w, b])[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (16, 16), (7, 131)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [(1, 1), (3, 3), (5, 2)])
def test_a_depthwise_convolution_adds_a_tensor_and_clamps(
    rt: Runtime, kernel_size: tuple[int, int], stride: int, size: tuple[int, int]
) -> None:
    x, w, b = noise(2, 5, *size), noise(5, 1, *kernel_size), noise(5)
    attrs = {"strides": (stride, stride), "pads": (2, 1, 2, 1), "dilations": (1, 1), "group": 5}
    plain = make_node("Conv", attrs, [x, w, b])
    y = plain.op.reference([x, w, b])[0]
    r = noise(*y.shape)
    node = make_node("Conv", {**attrs, "epilogue": trace(residual, F32, F32)}, [x, w, b, r], const=(1, 2))
    kernel = next(k for k in kernels_for("Conv") if k.name == "DepthwiseGeneric")
    assert kernel.refuse(kernel.problem(node, rt.info)) is None
    assert general("Conv").refuse(general("Conv").problem(node, rt.info)) is not None
    got = run_node(rt, kernel, node, [x, w, b, r])[0]
    np.testing.assert_allclose(got, np.clip(y + r, -1, 2), rtol=1e-4, atol=1e-5)
