"""Winograd convolution of images against the reference, whole pictures and strips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.image import image_winograd

from ..conv.test_winograd import CASES, make_case
from ..conv_checks import find_kernel
from .image_checks import check_image

DENSE = [name for name in CASES if name != "whole groups"]


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("f", [2, 4])
def test_float32(rt: Runtime, name: str, f: int) -> None:
    check_image(rt, "Conv", "ImageWinograd", *make_case(name), const=(1, 2), F=f)


@pytest.mark.parametrize("f", [2, 4])
def test_half_images(rt: Runtime, f: int) -> None:
    check_image(rt, "Conv", "ImageWinograd", *make_case("blocks"), const=(1, 2), precision=DType.FLOAT16, F=f)


@pytest.mark.parametrize(("tw", "tb"), [(8, 1), (2, 4), (4, 2)])
def test_tiles_that_do_not_divide(rt: Runtime, tw: int, tb: int) -> None:
    check_image(rt, "Conv", "ImageWinograd", *make_case("blocks"), const=(1, 2), F=2, TW=tw, TB=tb)


@pytest.mark.parametrize("f", [2, 4])
def test_strips(rt: Runtime, f: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_winograd, "STRIP", 0)  # as much as the filters
    attrs, _ = make_case("small")
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 8, 31, 37), (12, 8, 3, 3)))
    node = make_node("Conv", attrs, [x, w, None], const=(1,))
    assert image_winograd.WinogradTiles.of(node, rt.info, f, 0).number > 3
    check_image(rt, "Conv", "ImageWinograd", attrs, [x, w, None], const=(1,), F=f)


def test_an_epilogue_with_a_residual_and_a_gate(rt: Runtime) -> None:
    attrs, arrays = make_case("blocks")
    y = make_node("Conv", attrs, arrays).y.shape
    rng = np.random.default_rng(2)
    operands = [rng.standard_normal(s).astype(np.float32) for s in (y, (2, 53, 1, 1))]
    expr = parse_expr("add($0, $1); mul(%0, $2); max(%1, 0.5:f32)", [DType.FLOAT32] * 3)
    check_image(rt, "Conv", "ImageWinograd", {**attrs, "epilogue": expr}, [*arrays, *operands], const=(1, 2))


@pytest.mark.parametrize(("channels", "sides"), [(16, [4, 2]), (512, [2]), (768, [])])
def test_filters_that_would_take_too_much_memory(rt: Runtime, channels: int, sides: list[int]) -> None:
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    attrs, _ = make_case("small")
    arrays = [np.zeros(s, np.float32) for s in ((1, channels, 14, 14), (channels, channels, 3, 3))]
    kernel = find_kernel("Conv", "ImageWinograd")
    problem = kernel.problem(make_node("Conv", attrs, [*arrays, None], const=(1,)), rt.info)
    assert (kernel.refuse(problem) is None) == bool(sides)
    assert [f for f in (4, 2) if kernel.illegal(problem, {"F": f}) is None] == sides
    if sides:
        assert kernel.defaults(problem)["F"] in sides


@pytest.mark.parametrize(
    ("change", "kernel", "says"),
    [({"strides": (2, 2)}, 3, "stride 1"), ({}, 5, "only 3x3"), ({"group": 3}, 3, "filters of its own")],
)
def test_refusals(rt: Runtime, change: Any, kernel: int, says: str) -> None:
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, **change}
    w = np.zeros((12, 12 // attrs["group"], kernel, kernel), np.float32)
    node = make_node("Conv", attrs, [np.zeros((1, 12, 7, 7), np.float32), w, None], const=(1,))
    found = find_kernel("Conv", "ImageWinograd")
    assert says in str(found.refuse(found.problem(node, rt.info)))
