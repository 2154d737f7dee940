"""LocalResponseNorm kernels against the reference, epilogue included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.place import packed
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Binding, Kernel, kernels_for

from ..conv_checks import as_gpu, check_kernel, find_kernel

ATTRS = {"size": 5, "alpha": 0.5, "beta": 0.75, "bias": 1.2}
SIZES = [1, 2, 3, 4, 5, 8, 9]
rng = np.random.default_rng(47)

every_kernel = pytest.mark.parametrize("kernel", kernels_for("LocalResponseNorm"), ids=lambda k: k.name)


def check(
    rt: Runtime, kernel: Kernel, attrs: dict[str, Any], arrays: list[Any], half: bool = False, **params: int
) -> None:
    precision = DType.FLOAT16 if half else None
    plain = make_node("LocalResponseNorm", attrs, arrays, precision=precision)
    for binding in kernel.bindings(kernel.problem(plain, rt.info)):
        node = make_node("LocalResponseNorm", attrs, arrays, binding=binding, precision=precision)
        check_kernel(rt, kernel, node, arrays, params)


def array(*shape: int, dtype: str = "float32") -> Any:
    return (2 * rng.standard_normal(shape)).astype(dtype)


@every_kernel
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3, 16, 19, 53])
def test_sizes(rt: Runtime, kernel: Kernel, size: int, channels: int) -> None:
    check(rt, kernel, {**ATTRS, "size": size}, [array(2, channels, 5, 7)])


@every_kernel
@pytest.mark.parametrize("beta", [-1.0, 0.0, 0.5, 0.6, 1.0, 1.25, 2.0])
def test_powers(rt: Runtime, kernel: Kernel, beta: float) -> None:
    check(rt, kernel, {**ATTRS, "beta": beta}, [array(1, 19, 37)])


@every_kernel
@pytest.mark.parametrize("shape", [(3, 7, 41), (1, 33, 3, 5, 7), (2, 5, 1, 1), (1, 16, 31, 37)])
def test_shapes(rt: Runtime, kernel: Kernel, shape: tuple[int, ...]) -> None:
    check(rt, kernel, ATTRS, [array(*shape)])


@pytest.mark.parametrize("shape, size", [((5, 11), 3), ((2, 7, 3, 1, 2, 5), 4), ((2, 19, 23), 97)])
def test_what_only_flat_tensors_allow(rt: Runtime, shape: tuple[int, ...], size: int) -> None:
    check(rt, find_kernel("LocalResponseNorm", "LocalResponseFlat"), {**ATTRS, "size": size}, [array(*shape)])


@every_kernel
def test_of_nothing(rt: Runtime, kernel: Kernel) -> None:
    arrays = [array(0, 3, 5)]
    plain = make_node("LocalResponseNorm", ATTRS, arrays)
    for binding in kernel.bindings(kernel.problem(plain, rt.info)):
        node = make_node("LocalResponseNorm", ATTRS, arrays, binding=binding)
        assert run_node(rt, kernel, node, arrays)[0].shape == (0, 3, 5)


@pytest.mark.parametrize("pack", [4, 8, 16])
def test_windows_of_three_blocks(rt: Runtime, pack: int) -> None:
    kernel = find_kernel("LocalResponseNorm", "LocalResponsePacked")
    layout = packed(pack)
    for size, fits in ((2 * pack, True), (2 * pack + 1, True), (2 * pack + 2, False)):
        arrays, attrs = [array(1, 3 * pack + 1, 11)], {**ATTRS, "size": size}
        node = make_node("LocalResponseNorm", attrs, arrays, binding=Binding((layout,), (layout,)))
        if fits:
            check_kernel(rt, kernel, node, arrays)
        else:
            assert "beyond the neighbouring blocks" in (kernel.refuse(kernel.problem(node, rt.info)) or "")


@every_kernel
@pytest.mark.parametrize("size", [3, 4, 9])
def test_as_on_a_gpu(rt: Runtime, kernel: Kernel, size: int) -> None:
    gpu, attrs, arrays = as_gpu(rt), {**ATTRS, "size": size}, [array(2, 19, 5, 7)]
    plain = make_node("LocalResponseNorm", attrs, arrays)
    (binding,) = kernel.bindings(kernel.problem(plain, gpu.info))
    assert binding.outputs[0].pack in (1, 4)
    check_kernel(gpu, kernel, make_node("LocalResponseNorm", attrs, arrays, binding=binding), arrays)


@every_kernel
@pytest.mark.parametrize("dtype, half", [("float16", False), ("float32", True), ("float64", False)])
def test_types(rt: Runtime, kernel: Kernel, dtype: str, half: bool) -> None:
    if dtype == "float64" and not rt.info.fp64:
        pytest.skip("no double precision")
    arrays = [array(2, 19, 37, dtype=dtype)]
    why = kernel.refuse(kernel.problem(make_node("LocalResponseNorm", ATTRS, arrays), rt.info))
    if why is not None:
        assert dtype == "float64"
        pytest.skip(why)
    check(rt, kernel, ATTRS, arrays, half=half)


@every_kernel
def test_epilogue(rt: Runtime, kernel: Kernel) -> None:
    """A residual, and a function that writes helpers of its own: lanes past the last channel stay zero all the same."""
    expr = parse_expr("add($0, $1); exp(%0); pow(%1, 0.6:f32)", [DType.FLOAT32] * 2)
    attrs = {**ATTRS, "beta": 0.6, "epilogue": expr}
    check(rt, kernel, attrs, [array(2, 19, 5, 7), array(2, 19, 5, 7)])


@every_kernel
def test_zero_bias(rt: Runtime, kernel: Kernel) -> None:
    """The power of nothing is infinite, in the lanes past the last channel too."""
    check(rt, kernel, {**ATTRS, "bias": 0.0, "size": 1}, [array(1, 19, 23)])


@every_kernel
@pytest.mark.parametrize("each", [1, 4])
def test_shares(rt: Runtime, kernel: Kernel, each: int) -> None:
    more = {"DEEP": 4 // each} if "DEEP" in kernel.space else {"PACK": 4}
    check(rt, kernel, ATTRS, [array(2, 53, 5, 7)], EACH=each, **more)
