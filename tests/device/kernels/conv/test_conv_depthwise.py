"""Depthwise convolution on channel-packed tensors against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.text import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.place import packed
from opalite.kernels.base import Binding
from opalite.run.execute.node import make_node

from ..conv_checks import as_gpu, check_kernel, find_kernel

CASES = {  # C, spatial, kernel, strides, pads, dilations
    "3x3": (37, (11, 29), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "stride": (19, (11, 13), (5, 5), (2, 2), (2, 1, 2, 3), (1, 1)),
    "dilated": (16, (13, 31), (3, 3), (1, 2), (4, 2, 4, 2), (4, 2)),
    "far dilated": (5, (3, 67), (1, 3), (1, 2), (0, 20, 0, 20), (1, 23)),
    "long": (7, (1, 43), (1, 21), (1, 1), (0, 10, 0, 10), (1, 1)),
    "one column": (19, (29, 1), (3, 1), (1, 1), (1, 0, 1, 0), (1, 1)),
    "rank 1": (19, (43,), (3,), (1,), (-1, 2), (1,)),
    "rank 3": (5, (5, 3, 7), (2, 3, 3), (2, 1, 1), (1, 1, 1, 0, 1, 1), (1, 1, 1)),
}


def make_case(name: str) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, arrays) of a row of CASES."""
    c, spatial, kernel, strides, pads, dilations = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, c, *spatial), (c, 1, *kernel), (c,))]
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": c}, arrays


def check(
    rt: Runtime, attrs: dict[str, Any], arrays: list[Any], pack: int, precision: Any = None, **params: Any
) -> None:
    """DepthwisePacked on blocks of `pack` agrees with the reference."""
    layout = packed(pack)
    binding = Binding((layout, None, None, *(layout for _ in arrays[3:])), (layout,))
    node = make_node("Conv", attrs, arrays, const=(1, 2), binding=binding, precision=precision)
    check_kernel(rt, find_kernel("Conv", "DepthwisePacked"), node, arrays, params)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("pack", [4, 16])
def test_float32(rt: Runtime, name: str, pack: int) -> None:
    check(rt, *make_case(name), pack)


@pytest.mark.parametrize("name", CASES)
def test_as_on_a_gpu(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), *make_case(name), 4)


@pytest.mark.parametrize("tw", [1, 5, 14])
def test_tiles_without_bias(rt: Runtime, tw: int) -> None:
    attrs, (x, w, _) = make_case("3x3")
    check(rt, attrs, [x, w, None], 16, TW=tw)


def test_epilogue(rt: Runtime) -> None:
    attrs, arrays = make_case("3x3")
    residual = np.random.default_rng(1).standard_normal(arrays[0].shape).astype(np.float32)
    expr = parse_expr("add($0, $1); exp(%0)", [DType.FLOAT32] * 2)
    check(rt, {**attrs, "epilogue": expr}, [*arrays, residual], 16)


def test_half_storage(rt: Runtime) -> None:
    check(rt, *make_case("stride"), rt.info.pack, DType.FLOAT16)


def test_other_convolutions_are_refused(rt: Runtime) -> None:
    attrs, (x, *_) = make_case("3x3")
    node = make_node("Conv", {**attrs, "group": 1}, [x, np.zeros((5, 37, 3, 3), np.float32), None], const=(1,))
    kernel = find_kernel("Conv", "DepthwisePacked")
    refusal = kernel.refuse(kernel.problem(node, rt.info))
    assert refusal == "37 to 5 channels in 1 groups is not depthwise"
