"""Elementwise, resize, reduction, softmax and concatenation of images against their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.expr.trace_function import call
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node

from ....helpers.pairs import pairwise
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


@PRECISIONS
@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        (((2, 19, 5, 7), (1, 19, 5, 7)), 0),
        (((2, 19, 5, 7), (2, 19, 1, 7), (2, 19, 4, 7)), 2),
        (((2, 19, 5, 7), (2, 19, 5, 3)), 3),
        (((2, 7, 19), (1, 7, 19)), 0),
        (((2, 7, 19), (2, 5, 19)), 1),
        (((2, 7, 19), (2, 7, 6)), 2),
        (((7, 8), (7, 4)), 1),
        (((7, 8), (5, 8)), 0),
        (((19,), (3,)), 0),
    ],
    ids=str,
)
def test_concat_along_any_axis(rt: Runtime, shapes: Any, axis: int, precision: DType | None) -> None:
    arrays = [noise(i, *shape) for i, shape in enumerate(shapes)]
    check_image(rt, "Concat", "ImageConcat", {"axis": axis}, arrays, precision=precision)


def test_concat_of_many_inputs_is_refused(rt: Runtime) -> None:
    node = make_node("Concat", {"axis": 1}, [noise(i, 1, 4, 3, 3) for i in range(9)])
    kernel = find_kernel("Concat", "ImageConcat")
    assert kernel.refuse(kernel.problem(node, rt.info))


ROW_SHAPES = [(2, 7, 19), (7, 19), (19,), (1, 1, 19), (2, 7, 1), (7, 1), (2, 1, 1), (1,)]


@pytest.mark.parametrize("shape, const, precision", pairwise(ROW_SHAPES, [False, True], [None, DType.FLOAT16]), ids=str)
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


@pytest.mark.parametrize(
    "size, mode, coordinate, precision",
    pairwise(
        [(14, 22), (5, 23), (7, 13), (1, 1)],
        ["nearest", "linear", "cubic"],
        ["half_pixel", "align_corners", "asymmetric"],
        [None, DType.FLOAT16],
    ),
)
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


@pytest.mark.parametrize("channels, log, precision", pairwise([1, 4, 19], [False, True], [None, DType.FLOAT16]))
def test_softmax(rt: Runtime, channels: int, log: bool, precision: DType | None) -> None:
    attrs = {"axis": 1, "log": log}
    check_image(rt, "Softmax", "ImageChannelSoftmax", attrs, [noise(5, 2, channels, 5, 7) * 4], precision=precision)


PERMS = [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2), (0, 1, 3, 2), (0, 2, 1), (1, 0, 2)]
PERMS += [(2, 1, 0), (1, 0), (0,)]
SIDES = [0, 1, 2]  # images, from a buffer, to a buffer


@pytest.mark.parametrize("perm, precision, sides", pairwise(PERMS, [None, DType.FLOAT16], SIDES), ids=str)
def test_transpose(rt: Runtime, perm: tuple[int, ...], precision: DType | None, sides: int) -> None:
    x = noise(6, *(2, 19, 5, 7)[4 - len(perm) :])
    check_image(rt, "Transpose", "ImageTranspose", {"perm": perm}, [x], precision=precision, sides=sides)


SLICES = [  # shape, starts, steps, sizes
    ((2, 19, 7, 11), (0, 0, 2, 3), (1, 1, 1, 1), (2, 19, 5, 7)),
    ((2, 19, 7, 11), (0, 4, 0, 0), (1, 1, 1, 1), (2, 9, 7, 11)),
    ((3, 19, 7, 11), (1, 3, 6, 9), (1, 2, -2, -3), (2, 5, 3, 4)),
    ((2, 7, 19), (0, 1, 0), (1, 2, 1), (2, 3, 19)),
    ((2, 7, 19), (0, 0, 5), (1, 1, 3), (2, 7, 5)),
    ((7, 19), (2, 8), (1, 1), (5, 11)),
    ((19,), (17,), (-4,), (5,)),
]


@pytest.mark.parametrize("case, precision, sides", pairwise(SLICES, [None, DType.FLOAT16], SIDES), ids=str)
def test_slice(rt: Runtime, case: Any, precision: DType | None, sides: int) -> None:
    shape, starts, steps, sizes = case
    attrs = {"starts": starts, "steps": steps, "sizes": sizes}
    check_image(rt, "Slice", "ImageSlice", attrs, [noise(7, *shape)], precision=precision, sides=sides)


PADS = [  # shape, pads
    ((2, 19, 5, 7), (0, 0, 3, 1, 0, 0, 2, 4)),
    ((2, 19, 5, 7), (1, 2, 0, 0, 0, 3, 0, 0)),
    ((2, 5, 19), (0, 1, 3, 0, 2, 0)),
    ((19,), (3, 5)),
]


@pytest.mark.parametrize(
    "case, mode, precision, sides",
    pairwise(PADS, ["constant", "reflect", "edge", "wrap", "symmetric"], [None, DType.FLOAT16], SIDES),
    ids=str,
)
def test_pad(rt: Runtime, case: Any, mode: str, precision: DType | None, sides: int) -> None:
    shape, pads = case
    attrs = {"pads": pads, "mode": mode, "value": 1.5}
    if mode in ("reflect", "wrap") and pads[0] and len(shape) == 4:
        attrs["pads"] = (0, *pads[1:])
    check_image(rt, "Pad", "ImagePad", attrs, [noise(8, *shape)], precision=precision, sides=sides)


NORMS = [  # attributes, shape
    ({"kind": "instance"}, (2, 19, 7, 11)),
    ({"kind": "instance"}, (1, 4, 31, 37)),
    ({"kind": "group", "num_groups": 3}, (2, 15, 7, 5)),
    ({"kind": "group", "num_groups": 2}, (1, 64, 3, 5)),
]


@pytest.mark.parametrize(
    "case, wg, parts, precision", pairwise(NORMS, [1, 8], [0, 1, 4], [None, DType.FLOAT16]), ids=str
)
def test_normalize(rt: Runtime, case: Any, wg: int, parts: int, precision: DType | None) -> None:
    attrs, shape = case
    if parts == 0 and attrs["kind"] == "group":
        pytest.skip("in one launch each channel is by itself")
    arrays = [noise(9, *shape) + 2, noise(10, shape[1]), noise(11, shape[1]), noise(12, *shape)]
    full = {"kind": "", "epsilon": 1e-5, "axis": -1, "num_groups": 0, **attrs}
    full["epilogue"] = parse_expr("add($0, $1); max(%0, 0.0:f32)", [F32, F32])
    options = {"precision": precision, "WG": wg, "PARTS": parts}
    check_image(rt, "Normalize", "ImageInstanceNorm", full, arrays, flat=(1, 2), **options)


def test_normalize_without_scale_and_bias(rt: Runtime) -> None:
    attrs = {"kind": "instance", "epsilon": 1e-5, "axis": -1, "num_groups": 0}
    check_image(rt, "Normalize", "ImageInstanceNorm", attrs, [noise(9, 2, 19, 7, 11)])


ROWS = [(2, 7, 19), (5, 64), (131,)]


@pytest.mark.parametrize(
    "shape, kind, group, precision", pairwise(ROWS, ["layer", "rms"], [(1, 1), (8, 2), (1, 4)], [None, DType.FLOAT16])
)
def test_normalize_rows(rt: Runtime, shape: Any, kind: str, group: Any, precision: DType | None) -> None:
    arrays = [noise(9, *shape) + 2, noise(10, shape[-1]), noise(11, *(1,) * (len(shape) - 1), shape[-1])]
    arrays.append(noise(12, *shape))
    attrs = {"kind": kind, "epsilon": 1e-5, "axis": len(shape) - 1, "num_groups": 0}
    attrs["epilogue"] = parse_expr("add($0, $1)", [F32, F32])
    options = {"precision": precision, "WG": group[0], "ROWS": group[1]}
    check_image(rt, "Normalize", "ImageNormalizeRows", attrs, arrays, const=(1, 2), **options)


@pytest.mark.parametrize(
    "shape, log, group, precision", pairwise(ROWS, [False, True], [(1, 1), (8, 2)], [None, DType.FLOAT16])
)
def test_softmax_rows(rt: Runtime, shape: Any, log: bool, group: Any, precision: DType | None) -> None:
    attrs = {"axis": len(shape) - 1, "log": log}
    options = {"precision": precision, "WG": group[0], "ROWS": group[1]}
    check_image(rt, "Softmax", "ImageSoftmaxRows", attrs, [noise(5, *shape) * 4], **options)
