"""kernels/reduce/extremes.py: both ends of a tensor's range in one pass, from buffers, blocks and images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.ir.place import FLAT, IMAGE, packed
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Binding

from ....helpers.pairs import pairwise
from ..conv_checks import as_gpu, find_kernel

FORMS = {"ExtremesFlat": FLAT, "ExtremesPacked": packed(4), "ImageExtremes": IMAGE}
SIZES = ((1, 1, 1), (2, 5, 7, 3), (3, 13, 11), (1, 6, 29, 31))


def _check(rt: Runtime, form: str, x: Any, precision: DType | None = None, **params: int) -> None:
    if FORMS[form].is_image and not rt.info.image_support:
        pytest.skip("the device has no images")
    other = as_gpu(rt)
    node = make_node("Extremes", {}, [x], binding=Binding((FORMS[form],), (FLAT, FLAT)), precision=precision)
    kernel = find_kernel("Extremes", form)
    problem = kernel.problem(node, other.info)
    assert kernel.refuse(problem) is None
    point = {**kernel.defaults(problem), **params}
    assert kernel.illegal(problem, point) is None
    rounded = x if precision is None else x.astype(precision.np).astype(np.float32)
    for got, want in zip(run_node(other, kernel, node, [x], point), node.op.reference([rounded]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "form, size, parts, precision", pairwise(list(FORMS), list(SIZES), [1, 4], [None, DType.FLOAT16])
)
def test_extremes(rt: Runtime, form: str, size: tuple[int, ...], parts: int, precision: DType | None) -> None:
    """All elements have one sign, so that lanes past the last channel would show."""
    x = np.random.default_rng(sum(size)).uniform(1, 9, size).astype(np.float32)
    for sign in (1, -1):
        _check(rt, form, sign * x, precision, PARTS=parts, WG=32)


@pytest.mark.parametrize("form", list(FORMS))
def test_nan_and_infinities(rt: Runtime, form: str) -> None:
    x = np.linspace(-1, 1, 2 * 6 * 5 * 3, dtype=np.float32).reshape(2, 6, 5, 3)
    x[1, 5, 4, 2] = np.inf
    _check(rt, form, x, PARTS=2, WG=32)
    x[0, 1, 2, 1] = np.nan
    _check(rt, form, x, PARTS=2, WG=32)
