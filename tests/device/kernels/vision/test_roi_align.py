"""RoiAlign kernels against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for

rng = np.random.default_rng(29)
each_kernel = pytest.mark.parametrize("kernel", kernels_for("RoiAlign"), ids=lambda k: k.name)
REGIONS = np.array(
    [
        *([0, 0, 10, 10], [1, 2, 3, 3.5], [-5, -7, 30, 40], [3, 3, 3, 3], [8, 8, 2, 3], [0, 0, 14, 7]),
        *([100, 100, 200, 200], [-9, -9, -5, -5], [0, 0, 1e9, 3e30], [np.nan, 0, 3, 3], [0, 0, np.inf, 3]),
        *([16, 12, 17, 13], [-1, -1, 0, 0]),
    ]
)


def check(
    rt: Runtime, kernel: Kernel, dtype: Any = np.float32, regions: Any = np.float32, half: bool = False, **changed: Any
) -> None:
    attrs = {"rows": 3, "columns": 2, "ratio": 0, "scale": 0.5, "half_pixel": True, "maximum": False} | changed
    x = rng.standard_normal((2, 19, 13, 17)).astype(dtype)
    images = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 1, 5, -2])  # the last two are clamped
    arrays = [x, REGIONS.astype(regions), images.astype(np.int32) if half else images]
    precision = DType.FLOAT16 if half else None
    node = make_node("RoiAlign", attrs, arrays, precision=precision)
    why = kernel.refuse(kernel.problem(node, rt.info))
    if kernel.tier == "generic" and (half or node.op.maximum):
        assert why is not None
        return
    assert why is None
    binding = kernel.bindings(kernel.problem(node, rt.info))[0]
    node = make_node("RoiAlign", attrs, arrays, binding=binding, precision=precision)
    (got,) = run_node(rt, kernel, node, arrays)
    (want,) = node.op.reference(arrays)
    tolerance = 1e-2 if half or dtype is np.float16 else 3e-5
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


@each_kernel
@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("half_pixel", [False, True])
def test_samples_follow_the_region(rt: Runtime, kernel: Kernel, half_pixel: bool, maximum: bool) -> None:
    """One of 1e9 by 3e30 pixels takes no more samples than the image has."""
    check(rt, kernel, half_pixel=half_pixel, maximum=maximum)
    check(rt, kernel, half_pixel=half_pixel, maximum=maximum, ratio=3, scale=1.0)


@each_kernel
def test_half_storage(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, half=True)


def test_a_type_for_regions(rt: Runtime) -> None:
    check(rt, kernels_for("RoiAlign")[0], dtype=np.float16)
