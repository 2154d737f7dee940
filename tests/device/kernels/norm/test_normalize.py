"""Normalize kernels against the reference, epilogue included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.expression import evaluate
from opalite.expr.trace_function import trace
from opalite.ir.device.device_family import PTX_MMA
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for

from ..conv_checks import as_gpu

rng = np.random.default_rng(41)
TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "float64": 1e-12}
Shape = tuple[int, ...]

KINDS: list[tuple[dict[str, Any], Shape, Shape]] = [  # attributes, shape of x, shape of scale and bias
    ({"kind": "layer", "axis": 1}, (7, 131), (131,)),
    ({"kind": "layer", "axis": 2}, (2, 37, 5), (5,)),
    ({"kind": "layer", "axis": 1}, (3, 5, 7, 11), (5, 7, 11)),
    ({"kind": "layer", "axis": 1}, (3, 5, 7), (5, 1)),
    ({"kind": "layer", "axis": 1}, (3, 5, 7), (1,)),
    ({"kind": "layer", "axis": 0}, (13, 3), (13, 3)),
    ({"kind": "rms", "axis": 1}, (5, 1009), (1009,)),
    ({"kind": "rms", "axis": 2}, (2, 3, 53), (1, 1, 53)),
    ({"kind": "instance"}, (2, 37, 5, 11), (37,)),
    ({"kind": "instance"}, (3, 5, 17), (5,)),
    ({"kind": "instance"}, (1, 3, 2, 5, 7), (3,)),
    ({"kind": "group", "num_groups": 3}, (2, 15, 7, 5), (15,)),
    ({"kind": "group", "num_groups": 1}, (2, 13, 11), (13,)),
    ({"kind": "group", "num_groups": 2}, (2, 64, 3, 5), (64,)),
    ({"kind": "instance"}, (1, 5, 31, 37), (5,)),
    ({"kind": "group", "num_groups": 4}, (1, 20, 31, 37), (20,)),
]

every_kernel = pytest.mark.parametrize("kernel", kernels_for("Normalize"), ids=lambda k: k.name)


def check(
    rt: Runtime,
    kernel: Kernel,
    attrs: dict[str, Any],
    arrays: list[Any],
    const: tuple[int, ...] = (1, 2),
    half: bool = False,
    params: dict[str, Any] | None = None,
    tolerance: float | None = None,
) -> None:
    attrs = {"epsilon": 1e-5, **attrs}
    precision = DType.FLOAT16 if half else None
    plain = make_node("Normalize", attrs, arrays, const=const, precision=precision)
    why = kernel.refuse(kernel.problem(plain, rt.info))
    if why is not None:
        pytest.skip(why)
    if half:
        arrays = [a if a is None else a.astype(np.float16).astype(a.dtype) for a in arrays]
    (want,) = plain.op.reference(arrays)
    if "epilogue" in attrs:
        want = evaluate(attrs["epilogue"], [want, *arrays[3:]], want.shape)
    for binding in kernel.bindings(kernel.problem(plain, rt.info)):
        node = make_node("Normalize", attrs, arrays, const=const, binding=binding, precision=precision)
        (got,) = run_node(rt, kernel, node, arrays, params)
        allowed = tolerance or TOLERANCES["float16" if half else str(want.dtype)]
        wide = want.astype("float64")
        np.testing.assert_allclose(got.astype("float64"), wide, rtol=0, atol=allowed * max(1, np.abs(wide).max()))


def inputs(shape: Shape, parameters: Shape, dtype: str = "float32") -> list[Any]:
    arrays = (3 + 2 * rng.standard_normal(shape), 1 + rng.random(parameters), rng.standard_normal(parameters))
    return [a.astype(dtype) for a in arrays]


@every_kernel
@pytest.mark.parametrize("const", [(1, 2), ()], ids=["constant", "variable"])
@pytest.mark.parametrize("attrs, shape, parameters", KINDS)
def test_kinds(
    rt: Runtime, kernel: Kernel, attrs: dict[str, Any], shape: Shape, parameters: Shape, const: tuple[int, ...]
) -> None:
    check(rt, kernel, attrs, inputs(shape, parameters), const)


@every_kernel
@pytest.mark.parametrize("dtype, half", [("float16", False), ("float32", True), ("float64", False)])
@pytest.mark.parametrize("attrs, shape, parameters", KINDS[::4])
def test_types(
    rt: Runtime, kernel: Kernel, attrs: dict[str, Any], shape: Shape, parameters: Shape, dtype: str, half: bool
) -> None:
    if dtype == "float64" and not rt.info.fp64:
        pytest.skip("no double precision")
    check(rt, kernel, attrs, inputs(shape, parameters, dtype), half=half)


@every_kernel
@pytest.mark.parametrize("attrs, shape, parameters", [KINDS[0], KINDS[6], KINDS[8], KINDS[11]])
def test_without_scale_or_bias(
    rt: Runtime, kernel: Kernel, attrs: dict[str, Any], shape: Shape, parameters: Shape
) -> None:
    x, scale, bias = inputs(shape, parameters)
    check(rt, kernel, attrs, [x, None, None])
    check(rt, kernel, attrs, [x, scale, None])
    check(rt, kernel, attrs, [x, None, bias])


@every_kernel
@pytest.mark.parametrize("attrs, shape, parameters", [KINDS[0], KINDS[2], KINDS[8], KINDS[11], KINDS[13]])
def test_epilogue(rt: Runtime, kernel: Kernel, attrs: dict[str, Any], shape: Shape, parameters: Shape) -> None:
    """A residual of y's shape and a factor by column, or by channel."""
    f32 = DType.FLOAT32
    expr = trace(lambda y, r, s: (y + r).call("max", 0.0) * s, f32, f32, f32)
    factor_shape = shape[attrs["axis"] :] if "axis" in attrs else (1, shape[1], *(1,) * (len(shape) - 2))
    extra = [rng.standard_normal(s).astype(np.float32) for s in (shape, factor_shape)]
    check(rt, kernel, attrs | {"epilogue": expr}, [*inputs(shape, parameters), *extra], const=(1, 2, 4))


@every_kernel
@pytest.mark.parametrize("attrs, shape, parameters", [KINDS[0], KINDS[8], KINDS[11]])
def test_large_mean(rt: Runtime, kernel: Kernel, attrs: dict[str, Any], shape: Shape, parameters: Shape) -> None:
    """E(x^2) - E(x)^2 would lose the variance."""
    x, scale, bias = inputs(shape, parameters)
    check(rt, kernel, attrs, [np.round(x * 64) / 64 + np.float32(256), scale, bias])


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_rows_that_work_items_keep(rt: Runtime, kind: str) -> None:
    """Three vectors of a work-item hold a row, and the last ones of some are empty."""
    kernel = next(k for k in kernels_for("Normalize") if k.name == "NormalizeRows")
    attrs = {"kind": kind, "axis": 1, "epsilon": 1e-5}
    x, scale, bias = inputs((7, 88), (88,))
    check(rt, kernel, attrs, [x, scale, bias if kind == "layer" else None], params={"PACK": 4, "WG": 8, "ROWS": 2})


@pytest.mark.parametrize("wg, rows", [(1, 4), (4, 2), (32, 1)])
@pytest.mark.parametrize("attrs, shape, parameters", [KINDS[0], KINDS[8], KINDS[11]])
def test_work_groups_that_share_rows(
    rt: Runtime, attrs: dict[str, Any], shape: Shape, parameters: Shape, wg: int, rows: int
) -> None:
    kernel = next(k for k in kernels_for("Normalize") if k.name == "NormalizeRows")
    check(rt, kernel, attrs, inputs(shape, parameters), params={"PACK": 4, "WG": wg, "ROWS": rows})


@every_kernel
def test_values_far_from_zero(rt: Runtime, kernel: Kernel) -> None:
    """Statistics of one reading do not cancel, even if the elements that they begin with lie apart."""
    x = 1000 + rng.standard_normal((1, 8, 33, 40)).astype("float32")
    x[0, :, 0, 0] = x[0, :, 16, 20] = 0
    attrs = {"kind": "group", "num_groups": 2, "epsilon": 1e-5}
    check(rt, kernel, attrs, [x, None, None], tolerance=2e-4)


@pytest.mark.parametrize("warps", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "attrs, shape",
    [
        ({"kind": "group", "num_groups": 4}, (2, 20, 31, 67)),
        ({"kind": "group", "num_groups": 2}, (1, 64, 9, 20)),
        ({"kind": "instance"}, (1, 6, 41, 50)),
        ({"kind": "group", "num_groups": 2}, (1, 8, 129, 128)),
    ],
)
def test_work_groups_of_a_gpu(rt: Runtime, attrs: dict[str, Any], shape: Shape, half: bool, warps: bool) -> None:
    """Work-items of a group share the moments of a part, and those that join the parts, by local memory or by warps."""
    other = as_gpu(rt) if rt.info.is_cpu else rt
    if warps and rt.info.family == "pocl":
        other.info = replace(other.info, quirks=(*other.info.quirks, PTX_MMA))
    elif warps:
        pytest.skip("the device folds as it does")
    kernel = next(k for k in kernels_for("Normalize") if k.name == "InstanceGroupNormPacked")
    node = make_node("Normalize", {"epsilon": 1e-5, **attrs}, [np.zeros(shape, np.float32), None, None])
    params = kernel.defaults(kernel.problem(node, other.info))
    launches = kernel.launch(kernel.problem(node, other.info), params)
    assert [x.defines["WG"] for x in launches[:2]] >= [64, 1]
    check(other, kernel, attrs, inputs(shape, (shape[1],)), half=half)
