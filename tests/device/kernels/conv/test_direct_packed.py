"""Channel-packed convolutions against their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.place import FLAT, packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding

from ....helpers.pairs import pairwise
from ..conv_checks import as_gpu, check_kernel, find_kernel

CASES = {  # C, M, group, spatial, kernel, strides, pads, dilations
    "3x3": (5, 7, 1, (11, 13), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "blocks": (37, 53, 1, (7, 17), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "stride": (19, 33, 1, (11, 29), (3, 5), (2, 2), (0, 2, 1, 1), (1, 1)),
    "stride pointwise": (19, 33, 1, (11, 29), (1, 1), (2, 3), (0, 0, 0, 0), (1, 1)),
    "dilated": (17, 19, 1, (13, 31), (3, 3), (2, 1), (2, 4, 2, 4), (2, 4)),
    "far dilated": (17, 19, 1, (5, 67), (1, 3), (1, 2), (0, 20, 0, 20), (1, 23)),
    "cropping": (17, 19, 1, (11, 13), (3, 3), (1, 1), (-1, 2, 0, -2), (1, 1)),
    "whole groups": (64, 96, 2, (5, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "merged groups": (64, 64, 16, (5, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "odd groups": (15, 9, 3, (5, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "one column": (17, 19, 1, (29, 1), (3, 1), (2, 1), (1, 0, 1, 0), (1, 1)),
    "rank 1": (17, 19, 1, (67,), (5,), (2,), (2, 1), (1,)),
    "rank 3": (5, 19, 1, (5, 3, 7), (3, 2, 3), (2, 1, 1), (1, 0, 1, 1, 1, 0), (1, 1, 1)),
    "pointwise": (37, 53, 1, (5, 11), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "chunks": (300, 33, 1, (5, 17), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "pointwise chunks": (777, 95, 1, (5, 13), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "bands": (120, 72, 3, (5, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "pointwise bands": (240, 120, 3, (5, 3), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "pointwise bands of few": (60, 240, 3, (5, 3), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "pointwise groups": (96, 64, 2, (5, 3), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "one pixel": (37, 131, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
}


def make_case(name: str, dtype: Any = np.float32) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, arrays) of a row of CASES."""
    c, m, group, spatial, kernel, strides, pads, dilations = CASES[name]
    rng = np.random.default_rng(0)
    shapes = ((2, c, *spatial), (m, c // group, *kernel), (m,))
    arrays = [(rng.standard_normal(s) * 4).astype(dtype) for s in shapes]
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": group}, arrays


def check(
    rt: Runtime, name: str, attrs: dict[str, Any], arrays: list[Any], pack: int, precision: Any = None, **params: Any
) -> None:
    """Kernel `name` on blocks of `pack` agrees with the reference."""
    layout = packed(pack)
    extra = [layout if a.shape[2:] != (1, 1) else None for a in arrays[3:]]
    binding = Binding((FLAT if name == "ConvRowMajorToPacked" else layout, None, None, *extra), (layout,))
    const = [i for i in range(1, len(arrays)) if i < 3 or extra[i - 3] is None]
    node = make_node("Conv", attrs, arrays, const=const, binding=binding, precision=precision)
    check_kernel(rt, find_kernel("Conv", name), node, arrays, params)


@pytest.mark.parametrize("name, pack, kernel", pairwise(list(CASES), [4, 16], ["ConvPacked", "ConvRowMajorToPacked"]))
def test_float32(rt: Runtime, name: str, pack: int, kernel: str) -> None:
    check(rt, kernel, *make_case(name), pack)


@pytest.mark.parametrize("name", ["one pixel", *(n for n in CASES if n.startswith("pointwise"))])
@pytest.mark.parametrize("pack", [4, 8, 16])
def test_pointwise(rt: Runtime, name: str, pack: int) -> None:
    check(rt, "ConvPointwise", *make_case(name), pack)
    check(as_gpu(rt), "ConvPointwise", *make_case(name), pack)


@pytest.mark.parametrize(("kernel", "name"), [("ConvPacked", "chunks"), ("ConvPointwise", "pointwise chunks")])
def test_long_filters_are_used_in_chunks(rt: Runtime, kernel: str, name: str) -> None:
    if not rt.info.is_cpu:
        pytest.skip(f"{rt.info.name} is no CPU")
    attrs, arrays = make_case(name)
    layout = packed(16)
    node = make_node("Conv", attrs, arrays, const=(1, 2), binding=Binding((layout, None, None), (layout,)))
    k = find_kernel("Conv", kernel)
    (launch,) = k.launch(k.problem(node, rt.info), k.defaults(k.problem(node, rt.info)))
    assert launch.args["chunk"] < 49
    assert launch.args["ahead"] > 0
    assert launch.defines["GROUP"] > 1


@pytest.mark.parametrize(("tw", "tb", "unroll"), [(14, 1, 1), (1, 3, 4), (5, 4, 2), (7, 2, 1)])
def test_pointwise_tiles(rt: Runtime, tw: int, tb: int, unroll: int) -> None:
    attrs, (x, w, _) = make_case("pointwise")
    check(rt, "ConvPointwise", attrs, [x, w, None], 16, TW=tw, TB=tb, UNROLL=unroll)


@pytest.mark.parametrize(
    "name, kernel, tile",
    pairwise(["stride", "merged groups"], ["ConvPacked", "ConvRowMajorToPacked"], [(14, 2, 1), (1, 3, 4), (5, 4, 2)]),
)
def test_tiles(rt: Runtime, name: str, kernel: str, tile: tuple[int, int, int]) -> None:
    tw, tb, unroll = tile
    check(rt, kernel, *make_case(name), 16, TW=tw, TB=tb, UNROLL=unroll)


@pytest.mark.parametrize("name", ["3x3", "stride pointwise"])
@pytest.mark.parametrize("kernel", ["ConvPacked", "ConvRowMajorToPacked"])
def test_without_bias(rt: Runtime, name: str, kernel: str) -> None:
    attrs, (x, w, _) = make_case(name)
    check(rt, kernel, attrs, [x, w, None], 16)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("ConvPacked", "3x3"),
        ("ConvPacked", "stride"),
        ("ConvRowMajorToPacked", "stride"),
        ("ConvPointwise", "pointwise"),
    ],
)
def test_half_storage(rt: Runtime, kernel: str, name: str) -> None:
    check(rt, kernel, *make_case(name), rt.info.pack, DType.FLOAT16)


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.INT32])
@pytest.mark.parametrize("kernel", ["ConvPacked", "ConvRowMajorToPacked"])
def test_other_types(rt: Runtime, dtype: DType, kernel: str) -> None:
    attrs, arrays = make_case("stride")
    check(rt, kernel, attrs, [a.astype(dtype.np) for a in arrays], rt.info.pack)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("ConvPacked", "3x3"),
        ("ConvPacked", "whole groups"),
        ("ConvRowMajorToPacked", "3x3"),
        ("ConvPointwise", "pointwise"),
    ],
)
def test_epilogue(rt: Runtime, kernel: str, name: str) -> None:
    attrs, (x, w, b) = make_case(name)
    shape = make_node("Conv", attrs, [x, w, b]).y.shape
    rng = np.random.default_rng(1)
    residual, scale = (rng.standard_normal(s).astype(np.float32) for s in (shape, (1, shape[1], 1, 1)))
    expr = parse_expr("mul($0, $2); add(%0, $1); exp(%1)", [DType.FLOAT32] * 3)
    x = x / 64
    check(rt, kernel, {**attrs, "epilogue": expr}, [x, w, b / 64, residual, scale], 16)


@pytest.mark.parametrize(
    "name, kernel", [(name, ("ConvPacked", "ConvRowMajorToPacked")[i % 2]) for i, name in enumerate(CASES)]
)
def test_as_on_a_gpu(rt: Runtime, name: str, kernel: str) -> None:
    check(as_gpu(rt), kernel, *make_case(name), 4)
