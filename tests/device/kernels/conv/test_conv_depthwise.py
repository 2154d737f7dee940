"""Depthwise convolution on channel-packed tensors against its reference."""

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


WALKED = {  # C, spatial, kernel, strides, pads: of DepthwiseColumns
    "3x3": (37, (11, 29), (3, 3), (1, 1), (1, 1, 1, 1)),
    "stride": (19, (11, 13), (3, 3), (2, 2), (0, 1, 1, 1)),
    "strides that differ": (16, (13, 31), (2, 3), (2, 1), (4, 2, 4, 2)),
    "cropping": (8, (9, 17), (3, 2), (1, 2), (-1, 1, 1, -2)),
    "one column": (19, (29, 1), (3, 1), (1, 1), (1, 0, 1, 0)),
    "rank 1": (19, (43,), (3,), (1,), (1, 2)),
}


def walked_case(name: str) -> tuple[dict[str, Any], list[Any]]:
    c, spatial, kernel, strides, pads = WALKED[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, c, *spatial), (c, 1, *kernel), (c,))]
    return {"strides": strides, "pads": pads, "dilations": (1,) * len(strides), "group": c}, arrays


def check_walk(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], precision: Any = None, **params: Any) -> None:
    """DepthwiseColumns on blocks of 4 agrees with the reference."""
    layout = packed(4)
    binding = Binding((layout, None, None, *(layout for _ in arrays[3:])), (layout,))
    node = make_node("Conv", attrs, arrays, const=(1, 2), binding=binding, precision=precision)
    check_kernel(rt, find_kernel("Conv", "DepthwiseColumns"), node, arrays, params)


@pytest.mark.parametrize("name", WALKED)
@pytest.mark.parametrize("tw, th", [(2, 4), (1, 2), (4, 14), (1, 1)])
def test_walks(rt: Runtime, name: str, tw: int, th: int) -> None:
    check_walk(rt, *walked_case(name), TW=tw, TH=th)


def test_walks_as_on_a_gpu(rt: Runtime) -> None:
    check_walk(as_gpu(rt), *walked_case("3x3"), DType.FLOAT16)


@pytest.mark.parametrize("precision", [None, DType.FLOAT16])
def test_filters_that_do_not_fit_the_registers(rt: Runtime, precision: DType | None) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, 19, 11, 13), (19, 1, 5, 5), (19,))]
    attrs = {"strides": (2, 1), "pads": (2, 1, 2, 1), "dilations": (1, 1), "group": 19}
    check_walk(as_gpu(rt), attrs, arrays, precision)
    kernel = find_kernel("Conv", "DepthwiseColumns")
    node = make_node("Conv", attrs, arrays, const=(1, 2), binding=Binding((packed(4), None, None), (packed(4),)))
    problem = kernel.problem(node, as_gpu(rt).info)
    assert kernel.defaults(problem) == {"TW": 1, "TH": 1}
    assert [kernel.illegal(problem, {"TW": 1, "TH": th}) is None for th in (1, 2)] == [True, False]


def test_walks_with_an_epilogue_and_without_bias(rt: Runtime) -> None:
    attrs, (x, w, _) = walked_case("3x3")
    residual = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    expr = parse_expr("add($0, $1); exp(%0)", [DType.FLOAT32] * 2)
    check_walk(rt, {**attrs, "epilogue": expr}, [x, w, None, residual], TW=2, TH=7)


@pytest.mark.parametrize(
    "name, reason", [("stride", "exceed the registers"), ("dilated", "gaps"), ("rank 3", "several planes")]
)
def test_walks_are_refused(rt: Runtime, name: str, reason: str) -> None:
    attrs, arrays = make_case(name)
    if name == "stride":
        arrays[1] = np.zeros((*arrays[1].shape[:2], 7, 7), np.float32)
    layout = packed(4)
    node = make_node("Conv", attrs, arrays, const=(1, 2), binding=Binding((layout, None, None), (layout,)))
    kernel = find_kernel("Conv", "DepthwiseColumns")
    assert reason in str(kernel.refuse(kernel.problem(node, rt.info)))


def test_a_gpu_walks_in_halves(rt: Runtime) -> None:
    """One result a work-item where there are few; processors never walk, and floats were not measured."""
    device = as_gpu(rt).info
    device = dataclasses.replace(device, family="nvidia", compute_units=132)
    processor = dataclasses.replace(device, family="pocl", kind="cpu", wave_size=1)
    chosen = []
    half, single = DType.FLOAT16, DType.FLOAT32
    for info, batch, storage in ((device, 32, half), (device, 32, single), (device, 1, half), (processor, 32, half)):
        arrays = [np.broadcast_to(np.float32(0), s) for s in ((batch, 96, 56, 56), (96, 1, 3, 3), (96,))]
        attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "group": 96}
        layout = packed(4)
        binding = Binding((layout, None, None), (layout,))
        node = make_node("Conv", attrs, arrays, const=(1, 2), binding=binding, precision=storage)
        kernels = [find_kernel("Conv", name) for name in ("DepthwisePacked", "DepthwiseColumns")]
        seconds = [k.seconds(k.problem(node, info), node.cost()) for k in kernels]
        chosen.append(seconds[1] < seconds[0])
    assert chosen == [True, False, True, False]
