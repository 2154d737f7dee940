"""Elementwise, resize, reduction, softmax and concatenation of images against their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.text import parse_expr
from opalite.expr.trace import call
from opalite.ir.dtype import DType
from opalite.run.execute.node import make_node

from ..conv_checks import find_kernel
from .image_checks import check_image

F32 = DType.FLOAT32
PRECISIONS = pytest.mark.parametrize("precision", [None, DType.FLOAT16])


def noise(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@PRECISIONS
def test_elementwise_of_one_operand(rt: Runtime, precision: DType | None) -> None:
    attrs = {"expr": call("tanh", F32)}
    check_image(rt, "Elementwise", "ImageElementwise", attrs, [noise(0, 2, 19, 7, 11)], precision=precision)


@pytest.mark.parametrize("const", [False, True])
@pytest.mark.parametrize(
    "shape", [(2, 19, 7, 11), (1, 19, 1, 1), (2, 19, 1, 1), (2, 1, 7, 11), (1, 1, 7, 1), (1, 1, 1, 11), (2, 19, 7, 1)]
)
def test_elementwise_broadcasts_any_axis(rt: Runtime, shape: tuple[int, ...], const: bool) -> None:
    attrs = {"expr": parse_expr("sub($0, $1); exp(%0)", [F32, F32])}
    arrays = [noise(1, 2, 19, 7, 11), noise(2, *shape)]
    check_image(rt, "Elementwise", "ImageElementwise", attrs, arrays, const=(1,) if const else ())


def test_elementwise_with_a_scalar_that_is_computed(rt: Runtime) -> None:
    attrs = {"expr": parse_expr("mul($0, $1)", [F32, F32])}
    check_image(rt, "Elementwise", "ImageElementwise", attrs, [noise(1, 1, 3, 5, 7), noise(2, 1, 1, 1, 1)])


def test_constants_of_lower_rank(rt: Runtime) -> None:
    attrs = {"expr": parse_expr("add($0, $1)", [F32, F32])}
    check_image(rt, "Elementwise", "ImageElementwise", attrs, [noise(1, 2, 19, 7, 11), noise(2, 19, 1, 1)], const=(1,))
    check_image(rt, "Elementwise", "ImageElementwise", attrs, [noise(1, 2, 19, 7, 11), noise(2, 11)], const=(1,))


@PRECISIONS
@pytest.mark.parametrize("channels", [(8, 12), (4, 3), (3, 5), (1, 2, 3, 5, 7), (19,), (1,) * 8])
def test_concat(rt: Runtime, channels: tuple[int, ...], precision: DType | None) -> None:
    arrays = [noise(i, 2, c, 5, 7) for i, c in enumerate(channels)]
    check_image(rt, "Concat", "ImageConcat", {"axis": 1}, arrays, precision=precision)


def test_concat_of_many_inputs_is_refused(rt: Runtime) -> None:
    node = make_node("Concat", {"axis": 1}, [noise(i, 1, 4, 3, 3) for i in range(9)])
    kernel = find_kernel("Concat", "ImageConcat")
    assert kernel.refuse(kernel.problem(node, rt.info))


@PRECISIONS
@pytest.mark.parametrize("const", [False, True])
@pytest.mark.parametrize("shape", [(2, 7, 19), (7, 19), (19,), (1, 1, 19), (2, 7, 1), (7, 1), (2, 1, 1), (1,)])
def test_elementwise_of_rows(rt: Runtime, shape: tuple[int, ...], const: bool, precision: DType | None) -> None:
    """Tensors of less than four dimensions hold neighbours of their rows in a texel."""
    attrs = {"expr": parse_expr("sub($0, $1); exp(%0)", [F32, F32])}
    arrays = [noise(1, 2, 7, 19), noise(2, *shape)]
    check_image(rt, "Elementwise", "ImageElementwise", attrs, arrays, const=(1,) if const else (), precision=precision)


def resize_attrs(mode: str, coordinate: str, size: tuple[int, int], **more: Any) -> dict[str, Any]:
    return {
        "sizes": (2, 19, *size),
        "scales": (1.0, 1.0, size[0] / 7, size[1] / 11),
        "mode": mode,
        "coordinate": coordinate,
        "nearest_mode": "round_prefer_floor",
        "cubic_a": -0.75,
        "exclude_outside": False,
        "extrapolation": 0.0,
        "roi": None,
        "antialias": False,
        **more,
    }


@PRECISIONS
@pytest.mark.parametrize("size", [(14, 22), (5, 23), (7, 13), (1, 1)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinate", ["half_pixel", "align_corners", "asymmetric"])
def test_resize(rt: Runtime, mode: str, coordinate: str, size: tuple[int, int], precision: DType | None) -> None:
    attrs = resize_attrs(mode, coordinate, size)
    check_image(rt, "Resize", "ImageResize", attrs, [noise(3, 2, 19, 7, 11)], precision=precision)


def test_resize_antialiased(rt: Runtime) -> None:
    attrs = resize_attrs("linear", "half_pixel", (3, 5), antialias=True)
    check_image(rt, "Resize", "ImageResize", attrs, [noise(3, 2, 19, 7, 11)])


@PRECISIONS
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min"])
def test_reduce(rt: Runtime, kind: str, precision: DType | None) -> None:
    attrs = {"kind": kind, "axes": (2, 3), "keepdims": True}
    for side in (1, 8):
        check_image(rt, "Reduce", "ImageReduce", attrs, [noise(4, 2, 19, 13, 17) - 3], precision=precision, SIDE=side)


@PRECISIONS
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("channels", [1, 4, 19])
def test_softmax(rt: Runtime, channels: int, log: bool, precision: DType | None) -> None:
    attrs = {"axis": 1, "log": log}
    check_image(rt, "Softmax", "ImageSoftmax", attrs, [noise(5, 2, channels, 5, 7) * 4], precision=precision)
