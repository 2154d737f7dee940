"""GridSample kernels against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.ops.grid_sample import PADDINGS

rng = np.random.default_rng(23)


def check(
    rt: Runtime,
    kernel: Kernel,
    spatial: tuple[int, ...],
    points: tuple[int, ...],
    mode: str,
    padding: str,
    corners: bool,
    dtypes: tuple[str, str] = ("float32", "float32"),
    half: bool = False,
) -> None:
    x = rng.standard_normal((2, 19, *spatial)).astype(dtypes[0])
    grid = rng.uniform(-2.2, 2.2, (2, *points, len(spatial))).astype(dtypes[1])
    if half:
        grid = grid.astype(np.float16).astype(np.float32)
    grid.reshape(-1)[:3] = np.nan, np.inf, -3e4
    attrs = {"mode": mode, "padding": padding, "align_corners": corners}
    precision = DType.FLOAT16 if half else None
    node = make_node("GridSample", attrs, [x, grid], precision=precision)
    why = kernel.refuse(kernel.problem(node, rt.info))
    if kernel.tier == "generic" and (mode != "linear" or node.x.type.storage is not DType.FLOAT32):
        assert why is not None
        return
    assert why is None
    binding = kernel.bindings(kernel.problem(node, rt.info))[0]
    node = make_node("GridSample", attrs, [x, grid], binding=binding, precision=precision)
    (got,) = run_node(rt, kernel, node, [x, grid])
    (want,) = node.op.reference([x, grid])
    tolerance = 1e-2 if half or "float16" in dtypes else 3e-5
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("kernel", kernels_for("GridSample"), ids=lambda k: k.name)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images(rt: Runtime, kernel: Kernel, mode: str, padding: str, corners: bool) -> None:
    check(rt, kernel, (5, 7), (3, 11), mode, padding, corners)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_volumes(rt: Runtime, mode: str, padding: str) -> None:
    check(rt, kernels_for("GridSample")[0], (3, 5, 4), (2, 3, 7), mode, padding, False)


@pytest.mark.parametrize("kernel", kernels_for("GridSample"), ids=lambda k: k.name)
def test_half_storage(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, (5, 7), (3, 11), "linear", "zeros", False, half=True)


def test_grid_of_another_type(rt: Runtime) -> None:
    check(rt, kernels_for("GridSample")[0], (5, 7), (3, 11), "linear", "border", True, ("float16", "float32"))


def test_one_element_along_an_axis(rt: Runtime) -> None:
    check(rt, kernels_for("GridSample")[0], (1, 2), (3, 5), "cubic", "reflection", True)
