"""Matrix products of images against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.place import FLAT, IMAGE
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Binding

from ....helpers.pairs import pairwise
from ..conv_checks import as_adreno, as_gpu, check_kernel, find_kernel
from .image_checks import check_image

F32 = DType.FLOAT32
ATTRS = {"trans_a": False, "trans_b": False, "exact": False}
SIDES = [0, 1, 2]  # images, from a buffer, to a buffer
SHAPES = [  # a, b, trans_b
    ((7, 19), (19, 13), False),
    ((2, 7, 20), (20, 16), False),
    ((2, 7, 20), (13, 20), True),
    ((1, 37), (37, 5), False),
    ((2, 7, 19), (2, 19, 13), False),
    ((2, 7, 19), (2, 13, 19), True),
    ((1, 7, 19), (3, 19, 6), False),
]
TILES = [(1, 1, 1), (4, 2, 1), (2, 4, 4), (8, 1, 16)]


def noise(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "case, const, precision, sides", pairwise(SHAPES, [True, False], [None, DType.FLOAT16], SIDES), ids=str
)
def test_matmul(rt: Runtime, case: Any, const: bool, precision: DType | None, sides: int) -> None:
    a, b, trans_b = case
    attrs = {"trans_a": False, "trans_b": trans_b, "exact": False}
    given = {"const": (1,)} if const and len(b) == 2 else {}
    arrays = [noise(0, *a), noise(1, *b)]
    check_image(rt, "MatMul", "ImageMatmul", attrs, arrays, precision=precision, sides=sides, **given)


@pytest.mark.parametrize("case, tile, sides", pairwise([SHAPES[0], SHAPES[2], SHAPES[5]], TILES, SIDES), ids=str)
def test_tiles_and_epilogues(rt: Runtime, case: Any, tile: Any, sides: int) -> None:
    a, b, trans_b = case
    expr = parse_expr("add($0, $1); add(%0, $2); max(%1, 0.0:f32)", [F32] * 3)
    attrs = {"trans_a": False, "trans_b": trans_b, "exact": False, "epilogue": expr}
    columns = b[-2] if trans_b else b[-1]
    arrays = [noise(0, *a), noise(1, *b), noise(2, columns), noise(3, *a[:-1], columns)]
    options = {"TM": tile[0], "TB": tile[1], "SPLIT": tile[2], "sides": sides, "flat": (3,) if sides & 2 else ()}
    check_image(rt, "MatMul", "ImageMatmul", attrs, arrays, const=(2,), **options)


@pytest.mark.parametrize("case", SHAPES[:4], ids=str)
def test_constants_are_images_between_buffers_on_an_adreno(rt: Runtime, case: Any) -> None:
    a, b, trans_b = case
    expr = parse_expr("add($0, $1); max(%0, 0.0:f32)", [F32] * 2)
    attrs = {"trans_a": False, "trans_b": trans_b, "exact": False, "epilogue": expr}
    arrays = [noise(0, *a), noise(1, *b), noise(2, b[-2] if trans_b else b[-1])]
    binding = Binding((FLAT, None, FLAT), (FLAT,))
    node = make_node("MatMul", attrs, arrays, const=(1,), binding=binding)
    kernel, adreno = find_kernel("MatMul", "ImageMatmul"), as_adreno(rt)
    assert binding in kernel.bindings(kernel.problem(node, adreno.info))
    assert binding not in kernel.bindings(kernel.problem(node, as_gpu(rt).info))
    check_kernel(adreno, kernel, node, arrays)


@pytest.mark.parametrize("split", [1, 4])
def test_long_sums_stay_accurate(rt: Runtime, split: int) -> None:
    """Terms of one sign, summed in several numbers."""
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 8100), np.float32), rng.random((8100, 13), np.float32)
    node = make_node("MatMul", ATTRS, [a, b], const=(1,), binding=Binding((IMAGE, None), (IMAGE,)))
    kernel = find_kernel("MatMul", "ImageMatmul")
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, [a, b], {"TM": 2, "TB": 1, "SPLIT": split})
    assert np.abs(got / (a.astype(float) @ b.astype(float)) - 1).max() < 2e-6
