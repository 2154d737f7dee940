"""Channel-packed transposed convolution against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.place import packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding

from ..conv_checks import as_gpu, check_kernel, find_kernel

CASES = {  # C, M, group, spatial, kernel, strides, pads, dilations, output_padding
    "2x2": (5, 19, 1, (7, 11), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), (0, 0)),
    "4x4": (37, 53, 1, (5, 17), (4, 4), (2, 2), (1, 1, 1, 1), (1, 1), (0, 0)),
    "odd": (19, 21, 1, (5, 7), (3, 2), (1, 3), (0, 0, 1, 1), (2, 1), (0, 2)),
    "extending": (17, 3, 1, (9, 8), (3, 3), (1, 1), (-1, 0, 0, -2), (1, 1), (0, 0)),
    "sparse": (17, 16, 1, (3, 5), (2, 2), (3, 5), (0, 0, 0, 0), (1, 1), (0, 0)),
    "whole groups": (64, 32, 2, (5, 7), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (1, 1)),
    "depthwise": (20, 20, 20, (5, 7), (4, 4), (2, 2), (1, 1, 1, 1), (1, 1), (0, 0)),
    "rank 1": (17, 19, 1, (23,), (5,), (3,), (2, 1), (1,), (2,)),
    "rank 3": (3, 5, 1, (3, 5, 2), (2, 3, 3), (1, 2, 2), (0, 1, 1, 1, 0, 1), (1, 1, 2), (0, 0, 1)),
}


def make_case(name: str) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, arrays) of a row of CASES."""
    c, m, group, spatial, kernel, strides, pads, dilations, extra = CASES[name]
    rng = np.random.default_rng(0)
    shapes = ((2, c, *spatial), (c, m // group, *kernel), (m,))
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    return attrs | {"output_padding": extra}, arrays


def check(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], pack: int, precision: Any = None, **p: Any) -> None:
    """ConvTransposePacked on blocks of `pack` agrees with the reference."""
    layout = packed(pack)
    binding = Binding((layout, None, None, *(layout for _ in arrays[3:])), (layout,))
    node = make_node("ConvTranspose", attrs, arrays, const=(1, 2), binding=binding, precision=precision)
    check_kernel(rt, find_kernel("ConvTranspose", "ConvTransposePacked"), node, arrays, p)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("pack", [4, 16])
def test_float32(rt: Runtime, name: str, pack: int) -> None:
    check(rt, *make_case(name), pack)


@pytest.mark.parametrize("name", CASES)
def test_as_on_a_gpu(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), *make_case(name), 4)


@pytest.mark.parametrize(("tw", "tb"), [(1, 3), (5, 4), (14, 1)])
def test_tiles_without_bias(rt: Runtime, tw: int, tb: int) -> None:
    attrs, (x, w, _) = make_case("4x4")
    check(rt, attrs, [x, w, None], 16, TW=tw, TB=tb, UNROLL=2)


def test_epilogue(rt: Runtime) -> None:
    attrs, arrays = make_case("2x2")
    shape = make_node("ConvTranspose", attrs, arrays).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); exp(%0)", [DType.FLOAT32] * 2)
    check(rt, {**attrs, "epilogue": expr}, [*arrays, residual], 16)


def test_half_storage(rt: Runtime) -> None:
    check(rt, *make_case("odd"), rt.info.pack, DType.FLOAT16)
