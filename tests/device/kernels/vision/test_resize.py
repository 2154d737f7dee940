"""Resize kernels against the reference: every mode, axes, layouts and precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.ops.resize_weights import COORDINATES, NEAREST_MODES

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(17)
KERNELS = {k.name: k for k in kernels_for("Resize")}


def attrs_of(x: Array, sizes: tuple[int, ...], changed: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "sizes": sizes,
        "scales": tuple(o / i for o, i in zip(sizes, x.shape, strict=True)),
        "mode": "nearest",
        "coordinate": "half_pixel",
        "nearest_mode": "round_prefer_floor",
        "cubic_a": -0.75,
        "exclude_outside": False,
        "extrapolation": 0.0,
        "roi": None,
        "antialias": False,
    }
    return found | changed


def check(
    rt: Runtime,
    kernel: Kernel,
    x: Array,
    sizes: tuple[int, ...],
    params: dict[str, Any] | None = None,
    half: bool = False,
    **changed: Any,
) -> None:
    """Nearest neighbours agree bit by bit, weighted sums within the precision of the type."""
    attrs = attrs_of(x, sizes, changed)
    precision = DType.FLOAT16 if half else None
    node = make_node("Resize", attrs, [x], precision=precision)
    assert kernel.refuse(kernel.problem(node, rt.info)) is None
    node = make_node(
        "Resize", attrs, [x], binding=kernel.bindings(kernel.problem(node, rt.info))[0], precision=precision
    )
    (got,) = run_node(rt, kernel, node, [x], params)
    (want,) = node.op.reference([x])
    if attrs["mode"] == "nearest" and not half:
        np.testing.assert_array_equal(got, want)
    else:
        tolerance = 1e-2 if half or x.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


def floats(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


WEIGHTED = [
    {"mode": "linear"},
    {"mode": "cubic"},
    {"mode": "cubic", "exclude_outside": True, "cubic_a": -0.5},
    {"mode": "linear", "antialias": True},
    {"mode": "cubic", "antialias": True, "exclude_outside": True},
]


@pytest.mark.parametrize("name", ["ResizeWeighted", "ResizeWeightedPacked"])
@pytest.mark.parametrize("changed", WEIGHTED, ids=str)
@pytest.mark.parametrize("sizes", [(13, 29), (3, 5), (7, 23), (1, 1)])
def test_weighted(rt: Runtime, name: str, changed: dict[str, Any], sizes: tuple[int, int]) -> None:
    check(rt, KERNELS[name], floats(2, 19, 7, 11), (2, 19, *sizes), **changed)


@pytest.mark.parametrize("name", ["ResizeNearest", "ResizeNearestPacked"])
@pytest.mark.parametrize("nearest_mode", NEAREST_MODES)
@pytest.mark.parametrize("sizes", [(14, 22), (3, 5), (7, 23), (1, 1)])
def test_nearest(rt: Runtime, name: str, nearest_mode: str, sizes: tuple[int, int]) -> None:
    check(rt, KERNELS[name], floats(2, 19, 7, 11), (2, 19, *sizes), nearest_mode=nearest_mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("coordinate", [c for c in COORDINATES if c != "tf_crop_and_resize"])
def test_coordinates(rt: Runtime, coordinate: str, mode: str) -> None:
    kernel = KERNELS["ResizeNearest" if mode == "nearest" else "ResizeWeighted"]
    check(rt, kernel, floats(1, 3, 7, 11), (1, 3, 13, 5), mode=mode, coordinate=coordinate)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "shape, sizes",
    [
        ((11,), (23,)),
        ((5, 7), (3, 7)),
        ((3, 5, 7), (3, 9, 7)),
        ((2, 3, 4, 5), (3, 2, 5, 4)),
        ((2, 5, 3, 7, 3), (2, 7, 3, 5, 3)),
        ((2, 3, 4, 3, 5), (3, 4, 5, 2, 7)),
        ((2, 5, 7, 3), (2, 11, 13, 3)),
        ((3, 2, 5), (3, 2, 5)),
    ],
)
def test_any_axes(rt: Runtime, shape: tuple[int, ...], sizes: tuple[int, ...], mode: str) -> None:
    kernel = KERNELS["ResizeNearest" if mode == "nearest" else "ResizeWeighted"]
    check(rt, kernel, floats(*shape), sizes, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(rt: Runtime, mode: str) -> None:
    kernel = KERNELS["ResizeNearest" if mode == "nearest" else "ResizeWeighted"]
    roi = (0, 0, 0.4, -0.2, 1, 1, 1.3, 0.7)
    crop = {"coordinate": "tf_crop_and_resize", "roi": roi, "extrapolation": 7.0, "mode": mode}
    check(rt, kernel, floats(2, 3, 7, 11), (2, 3, 5, 13), **crop)


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "int64"])
def test_nearest_of_every_size_of_element(rt: Runtime, dtype: str) -> None:
    x = rng.integers(0, 2, (3, 5, 7)).astype(dtype)
    check(rt, KERNELS["ResizeNearest"], x, (3, 11, 3))


@pytest.mark.parametrize("name", ["ResizeNearest", "ResizeNearestPacked", "ResizeWeighted", "ResizeWeightedPacked"])
def test_half_storage(rt: Runtime, name: str) -> None:
    mode = "nearest" if "Nearest" in name else "linear"
    check(rt, KERNELS[name], floats(1, 19, 7, 5), (1, 19, 11, 10), half=True, mode=mode)


def test_double(rt: Runtime) -> None:
    if not rt.info.fp64:
        pytest.skip("the device has no double precision")
    check(rt, KERNELS["ResizeWeighted"], rng.standard_normal((3, 7, 5)), (3, 11, 10), mode="linear")


@pytest.mark.parametrize("name", ["ResizeNearestPacked", "ResizeWeightedPacked"])
def test_packed_lines(rt: Runtime, name: str) -> None:
    check(rt, KERNELS[name], floats(2, 5, 11), (2, 5, 29), mode="nearest" if "Nearest" in name else "linear")


@pytest.mark.parametrize("name", [name for name, k in KERNELS.items() if k.space])
@pytest.mark.parametrize("params", [{"SPAN": 1, "WG": 64}, {"SPAN": 4, "WG": 16}])
def test_parameters(rt: Runtime, name: str, params: dict[str, int]) -> None:
    mode = "nearest" if "Nearest" in name else "linear"
    check(rt, KERNELS[name], floats(1, 3, 7, 5), (1, 3, 11, 13), params, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_sizes_build_nothing_new(rt: Runtime, mode: str) -> None:
    for kernel in KERNELS.values():
        built = []
        for size in (7, 31):
            x = floats(1, 3, size, size)
            node = make_node("Resize", attrs_of(x, (1, 3, 13, 2 * size), {"mode": mode}), [x])
            if kernel.refuse(kernel.problem(node, rt.info)) is None:
                (launch,) = kernel.launch(kernel.problem(node, rt.info), kernel.defaults(kernel.problem(node, rt.info)))
                built.append((launch.defines, launch.prelude))
        assert not built or built[0] == built[1]
