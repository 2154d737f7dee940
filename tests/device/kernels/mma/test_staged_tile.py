"""Convolutions and matrix products on matrix units by way of local memory; processors stand in for the units."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.device.device_family import PTX_MMA, SHARED_VALUES
from opalite.ir.dtype import DType
from opalite.ir.graph import Value
from opalite.ir.place import Place, Target, packed
from opalite.ir.tensor_type import TensorType
from opalite.kernels.kernel import Binding
from opalite.kernels.mma.staged_tile import SPACE, legal_tiles
from opalite.ops.strided_view import Movement

from ....helpers.kernel_test_harness import make_node, run_node
from ....helpers.plain_builds import built_plain
from ..conv.test_direct_packed import check, make_case
from ..conv.test_transposed_packed import make_case as transposed_case
from ..conv_checks import check_kernel, find_kernel

TILES = [
    (4, 4, 2, 2, 1, 1, 3),
    (2, 1, 2, 2, 2, 2, 4),
    (1, 2, 1, 1, 4, 4, 2),
    (1, 1, 4, 1, 1, 1, 3),
    (4, 1, 1, 2, 1, 2, 2),
]

SIZED = [((65, 20, 520), values) for values in TILES]


@pytest.fixture
def optimised(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The runtime with a device that has matrix units or whose processors can stand in for them."""
    if PTX_MMA in rt.info.quirks:
        return rt
    if SHARED_VALUES in rt.info.quirks:
        pytest.skip("stand-ins use barriers, where this driver at times lets work-items share a value")
    if "Oclgrind" in rt.info.platform:
        monkeypatch.setenv("OCLGRIND_BUILD_OPTIONS", "-D__x86_64__")
    elif rt.info.family != "pocl":  # others compile for a machine of their own, which has no stand-ins
        pytest.skip("the device builds no inline PTX")
    other = copy.copy(rt)
    other.info = dataclasses.replace(
        rt.info, quirks=(*rt.info.quirks, PTX_MMA), local_mem=max(rt.info.local_mem, 49152)
    )
    return other


@pytest.fixture
def units(optimised: Runtime) -> Runtime:
    """The same; stand-ins are not optimised, which takes a second or more for each."""
    return built_plain(optimised)


def tile(values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(SPACE, values, strict=True))


@pytest.mark.parametrize("name", ["3x3", "stride", "far dilated", "cropping", "rank 3"])
def test_convolution(units: Runtime, name: str) -> None:
    check(units, "ConvGemmMmaStaged", *make_case(name), 4, DType.FLOAT16, **tile((1, 2, 2, 1, 1, 1, 3)))


@pytest.mark.parametrize("values", TILES)
@pytest.mark.parametrize("name", ["blocks"])
def test_convolution_tiles(units: Runtime, name: str, values: tuple[int, ...]) -> None:
    check(units, "ConvGemmMmaStaged", *make_case(name), 4, DType.FLOAT16, **tile(values))


@pytest.mark.parametrize("values", [TILES[0], *TILES[2:]])
def test_neighbours_move_together(units: Runtime, values: tuple[int, ...]) -> None:
    """A pointwise convolution of images with an even number of positions, in several images."""
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((3, 70, 6, 7), (53, 70, 1, 1), (53,))]
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    check(units, "ConvGemmMmaStaged", attrs, arrays, 4, DType.FLOAT16, **tile(values))


@pytest.mark.parametrize("name", ["2x2", "4x4", "extending", "sparse", "rank 1"])
def test_transposed_convolution(units: Runtime, name: str) -> None:
    check_transposed(units, *transposed_case(name), **tile((1, 2, 2, 1, 1, 1, 3)))


def test_transposed_convolution_epilogue(units: Runtime) -> None:
    """Of as many positions as the input, so that neighbours move together."""
    attrs, (x, w, b) = transposed_case("2x2")
    x = x[:, :, :6]
    shape = make_node("ConvTranspose", attrs, [x, w, b]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    check_transposed(units, {**attrs, "epilogue": expr}, [x, w, b, residual], **tile(TILES[2]))


def test_transposed_convolutions_that_are_left_to_others(units: Runtime) -> None:
    kernel = find_kernel("ConvTranspose", "ConvTransposeGemmMmaStaged")
    for name, why in (("odd", "dilated"), ("whole groups", "groups")):
        attrs, arrays = transposed_case(name)
        node = make_node("ConvTranspose", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
        assert why in (kernel.refuse(kernel.problem(node, units.info)) or "")


def check_transposed(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], **params: int) -> None:
    layout = packed(4)
    binding = Binding((layout, None, None, *(layout for _ in arrays[3:])), (layout,))
    node = make_node("ConvTranspose", attrs, arrays, const=(1, 2), binding=binding, precision=DType.FLOAT16)
    check_kernel(rt, find_kernel("ConvTranspose", "ConvTransposeGemmMmaStaged"), node, arrays, params)


def test_convolution_of_many_taps(units: Runtime) -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 17, 19), (24, 3, 7, 7), (24,))]
    attrs = {"strides": (2, 2), "pads": (3, 3, 3, 3), "dilations": (1, 1), "group": 1}
    check(units, "ConvGemmMmaStaged", attrs, arrays, 4, DType.FLOAT16, **tile((2, 1, 1, 2, 1, 2, 2)))


def test_convolution_epilogue(units: Runtime) -> None:
    attrs, (x, w, _) = make_case("blocks")
    shape = make_node("Conv", attrs, [x, w, None]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    check(
        units,
        "ConvGemmMmaStaged",
        {**attrs, "epilogue": expr},
        [x, w, None, residual],
        4,
        DType.FLOAT16,
        **tile(TILES[2]),
    )


@pytest.mark.parametrize(("sizes", "values"), [((197, 132, 200), None), ((37, 52, 8), TILES[3]), *SIZED])
@pytest.mark.parametrize("trans_b", [False, True])
def test_product(units: Runtime, sizes: tuple[int, int, int], trans_b: bool, values: tuple[int, ...] | None) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    expr = parse_expr("add($0, $1); add(%0, $2)", [DType.FLOAT32] * 3)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "epilogue": expr}
    arrays = [a, np.ascontiguousarray(b.T) if trans_b else b, bias, residual]
    node = make_node("MatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    check_kernel(
        units, find_kernel("MatMul", "MatmulMmaStaged"), node, arrays, None if values is None else tile(values)
    )


NORMAL_TILES = [None, (2, 1, 2, 2, 2, 2, 3), (1, 2, 1, 2, 2, 2, 3), (1, 1, 4, 1, 1, 1, 3), (1, 3, 2, 1, 4, 4, 2)]


@pytest.mark.parametrize("trans_b, values", [(True, None), *((i % 2 == 1, t) for i, t in enumerate(NORMAL_TILES))])
def test_product_of_normalised_rows(units: Runtime, trans_b: bool, values: tuple[int, ...] | None) -> None:
    """Rows of means and deviations of their own; one is constant."""
    rng = np.random.default_rng(0)
    m, n, k = 53, 68, 200
    a = rng.standard_normal((m, k), np.float32) * rng.uniform(0.1, 3, (m, 1)).astype(np.float32)
    a += rng.uniform(-4, 4, (m, 1)).astype(np.float32)
    a[7] = 0.5
    b = rng.standard_normal((k, n), np.float32) / k**0.5
    a, b = a.astype(np.float16).astype(np.float32), b.astype(np.float16).astype(np.float32)
    bias = rng.standard_normal(n, np.float32)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "epsilon": 1e-5}
    attrs["epilogue"] = parse_expr("add($0, $1)", [DType.FLOAT32] * 2)
    arrays = [a, np.ascontiguousarray(b.T) if trans_b else b, bias]
    node = make_node("NormalizedMatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    params = None if values is None else tile(values)
    check_kernel(units, find_kernel("NormalizedMatMul", "NormMatmulMmaStaged"), node, arrays, params)


ATTENTIONS = {  # q[B,H,S,D], heads and length of keys, mask, causal
    "plain": ((1, 2, 37, 64), 2, 53, None, False),
    "shared heads": ((2, 6, 70, 32), 2, 131, None, False),
    "causal": ((1, 2, 69, 64), 2, 69, None, True),
    "mask": ((2, 2, 37, 96), 1, 53, (2, 1, 37, 53), False),
    "padding": ((2, 2, 5, 32), 2, 53, (2, 1, 1, 53), True),
    "long rows": ((1, 1, 17, 128), 1, 70, None, False),
}


# Each case has one tile besides its own.
NARROW, WIDE = (1, 4, 16), (2, 1, 32)
OTHER_TILES = {
    "plain": WIDE,
    "shared heads": NARROW,
    "causal": NARROW,
    "mask": WIDE,
    "padding": NARROW,
    "long rows": WIDE,
}


@pytest.mark.parametrize("name, values", [*((name, None) for name in ATTENTIONS), *OTHER_TILES.items()])
def test_attention(units: Runtime, name: str, values: tuple[int, ...] | None) -> None:
    q, shared, keys, mask, causal = ATTENTIONS[name]
    rng = np.random.default_rng(3)
    other = (q[0], shared, keys, q[3])
    arrays: list[Any] = [rng.standard_normal(shape).astype(np.float32) for shape in (q, other, other)]
    if mask is None:
        arrays.append(None)
    else:
        arrays.append(np.where(rng.random(mask) < 0.3, -np.inf, rng.standard_normal(mask)).astype(np.float32))
    attrs = {"scale": 0.3, "causal": causal, "softcap": 0.0}
    node = make_node("Attention", attrs, arrays, precision=DType.FLOAT16)
    params = None if values is None else dict(zip(("QW", "KW", "KEYS", "LOOK"), (*values, 0), strict=True))
    check_kernel(units, find_kernel("Attention", "AttentionFlashMma"), node, arrays, params)


def test_attention_with_a_wide_mask(units: Runtime) -> None:
    """Numbers that half does not hold hide keys; a query that sees none weighs all alike."""
    shapes = ((1, 2, 21, 32), (1, 2, 37, 32), (1, 2, 37, 32))
    rng = np.random.default_rng(3)
    arrays: list[Any] = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    mask = np.where(rng.random((1, 1, 21, 37)) < 0.4, np.finfo(np.float32).min, 0).astype(np.float32)
    mask[0, 0, 3] = np.finfo(np.float32).min
    attrs = {"scale": 0.3, "causal": False, "softcap": 0.0}
    node = make_node("Attention", attrs, [*arrays, mask], precision=DType.FLOAT16)
    node.inputs[3] = Value("mask", TensorType(DType.FLOAT32, mask.shape, Place(Target.OPENCL)))
    params = dict(zip(("QW", "KW", "KEYS", "LOOK"), (*NARROW, 0), strict=True))
    check_kernel(units, find_kernel("Attention", "AttentionFlashMma"), node, [*arrays, mask], params)


@pytest.mark.parametrize("lowest", [-np.inf, np.finfo(np.float32).min])
def test_attention_that_looks_at_its_mask(units: Runtime, lowest: float) -> None:
    """Keys that all queries of a group are hidden from are passed over, so that what is no number there is not seen;
    but for a group one of whose queries sees no key."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 2, n, 32)).astype(np.float32) for n in (70, 200, 200))
    queries, keys = np.arange(70)[:, None], np.arange(200)
    mask = np.where(keys > queries + 60, lowest, 0)[None, None].repeat(2, 0).astype(np.float32)
    mask[0, 0, :, 20:30] = -0.5
    mask[1, 0, 40] = lowest
    arrays = [q, k, v, mask]
    node = make_node("Attention", {"scale": 0.3, "causal": False, "softcap": 0.0}, arrays, precision=DType.FLOAT16)
    if lowest > -np.inf:
        node.inputs[3] = Value("mask", TensorType(DType.FLOAT32, mask.shape, Place(Target.OPENCL)))
    params = {"QW": 2, "KW": 1, "KEYS": 32, "LOOK": 1}
    kernel = find_kernel("Attention", "AttentionFlashMma")
    check_kernel(units, kernel, node, arrays, params)
    (want,) = node.op.reference(arrays)
    v[:, :, 160:] = np.nan  # hidden from all
    (got,) = run_node(units, kernel, node, arrays, params)
    seen = np.ones((2, 70), bool)
    seen[1, 32:64] = False  # the group of the query that sees no key
    np.testing.assert_allclose(got.transpose(0, 2, 1, 3)[seen], want.transpose(0, 2, 1, 3)[seen], rtol=0, atol=5e-3)


def test_attention_in_place(units: Runtime) -> None:
    """Queries, keys and values of one tensor [S,B,3,H,D], and an output [S,B,H,D]."""
    joint = np.random.default_rng(3).standard_normal((37, 2, 3, 2, 32)).astype(np.float32)
    views = tuple(Movement.of(joint.shape).pick(2, i).transpose((1, 2, 0, 3)).view for i in range(3))
    attrs = {"scale": 0.2, "causal": False, "softcap": 0.0, "views": views, "out_axes": (2, 0, 1, 3)}
    node = make_node("Attention", attrs, [joint, joint, joint, None], precision=DType.FLOAT16)
    check_kernel(units, find_kernel("Attention", "AttentionFlashMma"), node, [joint, joint, joint, None])


def test_tiles_that_are_chosen_from(units: Runtime) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((70, 264), np.float32), rng.standard_normal((264, 36), np.float32)
    node = make_node("MatMul", {"trans_a": False, "trans_b": False}, [a, b], const=(1,), precision=DType.FLOAT16)
    tiles = list(legal_tiles(units.info))
    assert len(tiles) > 12
    for params in tiles[::8]:
        check_kernel(units, find_kernel("MatMul", "MatmulMmaStaged"), node, [a, b], params)


def test_optimised(optimised: Runtime) -> None:
    """A program of each kernel, of the tile that is compiled soonest."""
    test_product(optimised, (37, 52, 8), False, TILES[3])
    test_convolution_tiles(optimised, "blocks", TILES[3])
    test_product_of_normalised_rows(optimised, False, NORMAL_TILES[2])
    test_attention(optimised, "plain", WIDE)
