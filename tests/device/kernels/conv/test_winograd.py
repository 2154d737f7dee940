"""Winograd convolution against the reference, whole images and strips."""

from __future__ import annotations

import dataclasses
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

CASES = {  # C, M, group, height, width, pads
    "small": (5, 7, 1, 11, 13, (1, 1, 1, 1)),
    "blocks": (37, 53, 1, 7, 17, (0, 1, 2, 0)),
    "cropping": (17, 19, 1, 11, 13, (-1, 2, 0, -2)),
    "whole groups": (64, 32, 2, 5, 11, (1, 1, 1, 1)),
}


def make_case(name: str) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, arrays) of a row of CASES."""
    c, m, group, h, w, pads = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, c, h, w), (m, c // group, 3, 3), (m,))]
    return {"strides": (1, 1), "pads": pads, "dilations": (1, 1), "group": group}, arrays


def check(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], pack: int, precision: Any = None, **p: Any) -> None:
    """ConvWinograd on blocks of `pack` agrees with the reference."""
    if pack > rt.info.pack:
        pytest.skip(f"the device has blocks of {rt.info.pack}")
    layout = packed(pack)
    binding = Binding((layout, None, None, *(layout for _ in arrays[3:])), (layout,))
    node = make_node("Conv", attrs, arrays, const=(1, 2), binding=binding, precision=precision)
    check_kernel(rt, find_kernel("Conv", "ConvWinograd"), node, arrays, p)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("f", [2, 4])
@pytest.mark.parametrize("pack", [4, 16])
def test_float32(rt: Runtime, name: str, f: int, pack: int) -> None:
    check(rt, *make_case(name), pack, F=f)


@pytest.mark.parametrize(("tw", "tb"), [(1, 1), (5, 3), (16, 1), (8, 2)])
def test_tiles_that_do_not_divide(rt: Runtime, tw: int, tb: int) -> None:
    check(rt, *make_case("blocks"), 16, F=2, TW=tw, TB=tb)


@pytest.mark.parametrize("name", CASES)
def test_as_on_a_gpu(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), *make_case(name), 4)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("f", [2, 4])
def test_as_on_a_gpu_without_local_memory(rt: Runtime, name: str, f: int) -> None:
    """Mali: the products read filters and tiles from buffers."""
    other = as_gpu(rt)
    other.info = dataclasses.replace(other.info, local_mem_dedicated=False)
    check(other, *make_case(name), 4, F=f)


@pytest.mark.parametrize("f", [2, 4])
def test_strips(rt: Runtime, f: int) -> None:
    rng = np.random.default_rng(1)
    attrs, _ = make_case("small")
    shapes = ((1, 64, 61, 67), (80, 64, 3, 3))
    x, w = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    check(rt, attrs, [x, w, None], 16, F=f, STRIP=1)


def test_epilogue(rt: Runtime) -> None:
    attrs, arrays = make_case("blocks")
    shape = make_node("Conv", attrs, arrays).y.shape
    residual = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0.5:f32)", [DType.FLOAT32] * 2)
    check(rt, {**attrs, "epilogue": expr}, [*arrays, residual], 16)


def test_half_storage(rt: Runtime) -> None:
    check(rt, *make_case("small"), rt.info.pack, DType.FLOAT16)


@pytest.mark.parametrize(
    ("change", "kernel", "says"),
    [({"strides": (2, 2)}, 3, "stride 1"), ({}, 5, "only 3x3"), ({"group": 3}, 3, "would have to be merged")],
)
def test_refusals(rt: Runtime, change: Any, kernel: int, says: str) -> None:
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, **change}
    w = np.zeros((6, 6 // attrs["group"], kernel, kernel), np.float32)
    node = make_node("Conv", attrs, [np.zeros((1, 6, 7, 7), np.float32), w, None], const=(1,))
    kernel = find_kernel("Conv", "ConvWinograd")
    refusal = kernel.refuse(kernel.problem(node, rt.info))
    assert refusal is not None
    assert says in refusal
