"""Casts between places of the device: layouts, storage types and both at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir import FLAT, IMAGE, DType, Layout, Node, Place, Target, TensorType, Value, packed
from opalite.kernel.testing.single_node import run_node
from opalite.kernels import kernels_for
from opalite.ops.elementwise import place_cast

SHAPES = [(2, 3, 7, 11), (1, 37, 5, 5), (1, 16, 31, 17), (2, 50, 67), (1, 1, 1, 1), (3, 19, 1, 1), (2, 0, 3, 3)]


def make_cast(dtype: DType, shape: tuple[int, ...], source: Place, target: Place) -> Node:
    x = Value("x", TensorType(dtype, shape, source))
    y = Value("y", TensorType(dtype, shape, target))
    return place_cast(x, y)


def place(layout: Layout, storage: DType | None = None) -> Place:
    return Place(Target.OPENCL, layout, storage)


def check(rt: Runtime, node: Node, array: Any, both: bool = True) -> None:
    """Every kernel that takes the cast gives the array again, rounded as the storage types round it.

    both: with tiles and without, where a kernel knows both.
    """
    want = array.astype(node.x.type.storage.np).astype(node.y.type.storage.np).astype(array.dtype)
    ran = 0
    for kernel in kernels_for("PlaceCast"):
        if kernel.refuse(kernel.problem(node, rt.info)) is not None:
            continue
        points = [kernel.defaults(kernel.problem(node, rt.info))]
        if both:
            points += [{"TILED": not p["TILED"], "EACH": 7} for p in points if "TILED" in p]
        for params in points:
            got = run_node(rt, kernel, node, [array], params)[0]
            # write_imagef may round toward zero: up to one unit in half's last place.
            tolerance = 2.0**-10 if node.y.type.layout.is_image and node.y.type.storage is DType.FLOAT16 else 0
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=0, err_msg=f"{kernel.name} {params}")
            ran += 1
    assert ran, "no kernel takes the cast"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", [FLAT, packed(4), packed(16)], ids=str)
@pytest.mark.parametrize("source", [FLAT, packed(4), packed(16)], ids=str)
def test_layouts(rt: Runtime, source: Layout, target: Layout, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(rt, make_cast(DType.FLOAT32, shape, place(source), place(target)), x)


LAYOUTS = [(FLAT, FLAT), (FLAT, packed(16)), (packed(4), FLAT), (packed(16), packed(16))]
STORED = [
    (DType.FLOAT32, DType.FLOAT16),
    (DType.FLOAT16, DType.FLOAT32),
    (DType.FLOAT16, DType.FLOAT16),
    (DType.FLOAT32, DType.BFLOAT16),
    (DType.BFLOAT16, DType.FLOAT32),
    (DType.FLOAT32, DType.FLOAT64),
    (DType.FLOAT64, DType.FLOAT32),
]
# To half in all layouts, as models need it; each other pair of types in two of the four.
CASTS = [
    (*types, layouts)
    for i, types in enumerate(STORED)
    for j, layouts in enumerate(LAYOUTS)
    if types[1] is DType.FLOAT16 or i % 2 == j % 2
]


@pytest.mark.parametrize("source, target, layouts", CASTS)
def test_storage_types(rt: Runtime, source: DType, target: DType, layouts: tuple[Layout, Layout]) -> None:
    if DType.FLOAT64 in (source, target) and not rt.info.fp64:
        pytest.skip("no double precision")
    x = np.random.default_rng(1).standard_normal((2, 19, 5, 23)).astype(np.float32)
    node = make_cast(DType.FLOAT32, x.shape, place(layouts[0], source), place(layouts[1], target))
    check(rt, node, x, both=target is DType.FLOAT16)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.bool_, np.float64])
def test_element_sizes(rt: Runtime, dtype: Any) -> None:
    x = np.random.default_rng(2).integers(0, 2 if dtype is np.bool_ else 100, (2, 21, 3, 13)).astype(dtype)
    for source, target in ((FLAT, packed(16)), (packed(8), FLAT), (FLAT, FLAT)):
        check(rt, make_cast(DType.of(x), x.shape, place(source), place(target)), x)


@pytest.mark.parametrize("storage", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("other", [FLAT, packed(4), packed(16)], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 7, 11), (1, 37, 5, 3), (2, 5, 19), (3, 7, 8), (5, 19), (1, 4)])
def test_images(rt: Runtime, shape: tuple[int, ...], other: Layout, storage: DType) -> None:
    if not rt.info.image_support:
        pytest.skip("no images")
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    check(rt, make_cast(DType.FLOAT32, shape, place(other), place(IMAGE, storage)), x)
    check(rt, make_cast(DType.FLOAT32, shape, place(IMAGE, storage), place(other)), x)


@pytest.mark.parametrize("storage", [DType.FLOAT32, DType.FLOAT16])
def test_images_of_one_dimension(rt: Runtime, storage: DType) -> None:
    if not rt.info.image_support:
        pytest.skip("no images")
    x = np.random.default_rng(3).standard_normal(19).astype(np.float32)
    check(rt, make_cast(DType.FLOAT32, x.shape, place(FLAT), place(IMAGE, storage)), x)
    check(rt, make_cast(DType.FLOAT32, x.shape, place(IMAGE, storage), place(FLAT)), x)


def test_host_is_a_copy(rt: Runtime) -> None:
    node = make_cast(DType.FLOAT32, (2, 3), Place(Target.HOST), place(FLAT))
    for kernel in kernels_for("PlaceCast"):
        assert kernel.refuse(kernel.problem(node, rt.info)) is not None


def test_vectors_have_no_channels(rt: Runtime) -> None:
    node = make_cast(DType.FLOAT32, (5,), place(FLAT), place(packed(4)))
    for kernel in kernels_for("PlaceCast"):
        assert kernel.refuse(kernel.problem(node, rt.info)) is not None
