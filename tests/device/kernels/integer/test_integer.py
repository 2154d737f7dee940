"""Convolutions and products of 8-bit integers give exactly what the reference does, by dot products and in C."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.expression import Expr
from opalite.expr.trace_function import Sym, trace
from opalite.ir.device.device_family import PTX_DOT
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.ir.place import FLAT, packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding, Kernel, kernels_for
from opalite.ops.affine_quantization import quantized
from opalite.pocl.cpu_workarounds import cpu_flags

from ....helpers.pairs import pairwise
from ..conv.test_direct_packed import CASES
from ..conv_checks import as_adreno, as_gpu, check_kernel, find_kernel

MIXES = [("u1", "i1"), ("i1", "i1"), ("u1", "u1"), ("i1", "u1")]
TILES = [(1, 1, 8, 4, 4), (4, 2, 32, 1, 8), (8, 2, 16, 2, 1), (2, 4, 8, 8, 2)]
"""Positions and blocks (rows and columns) of a work-item, work-items along them, split."""


def values(rng: np.random.Generator, kind: str, *shape: int) -> Any:
    """Every value of the type is likely, the extremes most of all."""
    info = np.iinfo(kind)
    found = rng.integers(info.min, info.max + 1, shape)
    ends = rng.random(shape)
    return np.where(ends < 0.2, info.min, np.where(ends > 0.8, info.max, found)).astype(kind)


def in_plain_c(rt: Runtime) -> Runtime:
    """`rt` without dot products of its own."""
    other = copy.copy(rt)
    gone = ("cl_khr_integer_dot_product",)
    extensions = tuple(e for e in rt.info.extensions if e not in gone)
    quirks = tuple(q for q in rt.info.quirks if q != PTX_DOT)
    other.info = dataclasses.replace(rt.info, extensions=extensions, quirks=quirks)
    return other


def make_conv(name: str, mix: tuple[str, str], zeros: str, depthwise: bool = False) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, inputs) of a row of CASES. zeros: "x" and "w" for zero points of either, "m" for one by channel."""
    c, m, group, spatial, kernel, strides, pads, dilations = CASES[name]
    if depthwise:
        group = m = c
    rng = np.random.default_rng(0)
    x, w = values(rng, mix[0], 2, c, *spatial), values(rng, mix[1], m, c // group, *kernel)
    x_zero = values(rng, mix[0], 1).reshape(()) if "x" in zeros else None
    w_zero = values(rng, mix[1], m if "m" in zeros else 1) if "w" in zeros or "m" in zeros else None
    bias = rng.integers(-(1 << 20), 1 << 20, m).astype(np.int32) if "b" in zeros else None
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    return attrs, [x, w, bias, x_zero, w_zero]


def check_conv(
    rt: Runtime, kernel: str, attrs: dict[str, Any], arrays: list[Any], pack: int = 4, **params: Any
) -> None:
    layout = packed(pack)
    extra = [layout if a.shape[2:] != (1, 1) else None for a in arrays[5:]]
    zero = None if arrays[3] is None else FLAT
    binding = Binding((layout, None, None, zero, None, *extra), (layout,))
    const = [1, 2, 4, *(i for i, e in enumerate(extra, 5) if e is None)]
    node = make_node("IntegerConv", attrs, arrays, const=const, binding=binding)
    check_kernel(rt, find_kernel("IntegerConv", kernel), node, arrays, params)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] == 1])
def test_convolution(rt: Runtime, name: str) -> None:
    check_conv(rt, "ConvDot4", *make_conv(name, MIXES[0], "xb"))


@pytest.mark.parametrize(
    ("mix", "zeros"), [*((mix, "xmb") for mix in MIXES), *((MIXES[0], z) for z in ("", "x", "w", "xw"))]
)
def test_zero_points(rt: Runtime, mix: tuple[str, str], zeros: str) -> None:
    check_conv(rt, "ConvDot4", *make_conv("stride", mix, zeros))
    check_conv(in_plain_c(rt), "ConvDot4", *make_conv("pointwise", mix, zeros))


@pytest.mark.parametrize("name", ["3x3", "blocks", "one pixel"])
@pytest.mark.parametrize("tile", TILES)
def test_convolution_tiles(rt: Runtime, name: str, tile: tuple[int, ...]) -> None:
    params = dict(zip(("TP", "TC", "PX", "CY", "SPLIT"), tile, strict=True))
    check_conv(rt, "ConvDot4", *make_conv(name, MIXES[0], "xmb"), **params)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] == 1 and case[0] < 30])
@pytest.mark.parametrize("mix", MIXES[:2])
def test_depthwise(rt: Runtime, name: str, mix: tuple[str, str]) -> None:
    check_conv(rt, "DepthwiseDot4", *make_conv(name, mix, "xmb", depthwise=True), pack=rt.info.pack)
    check_conv(as_gpu(rt), "DepthwiseDot4", *make_conv(name, mix, "", depthwise=True), TW=4)


def check_fours(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], name: str = "ConvVnni", **params: Any) -> None:
    """By ConvVnni or DepthwiseVnni, where the device has sums of four products in vectors."""
    kernel = find_kernel("IntegerConv", name)
    node = make_node("IntegerConv", attrs, arrays, const=[1, 2, 4, *range(5, len(arrays))])
    problem = kernel.problem(node, rt.info)
    why = kernel.refuse(problem) or (kernel.illegal(problem, params) if params else None)
    if why is not None:
        pytest.skip(why)
    (binding,) = kernel.bindings(problem)
    extra = [binding.outputs[0] if a.shape[2:] != (1, 1) else None for a in arrays[5:]]
    binding = Binding((*binding.inputs[:5], *extra), binding.outputs)
    const = [1, 2, 4, *(i for i, layout in enumerate(extra, 5) if layout is None)]
    known = [3] * (arrays[3] is not None and arrays[3].ndim == 0)
    node = make_node("IntegerConv", attrs, arrays, const=const + known, binding=binding)
    check_kernel(rt, kernel, node, arrays, params)


@pytest.mark.parametrize("name, mix", pairwise(list(CASES), MIXES[:2]))
def test_fours(rt: Runtime, name: str, mix: tuple[str, str]) -> None:
    check_fours(rt, *make_conv(name, mix, "xb"))


@pytest.mark.parametrize(
    "name, mix, zeros", pairwise(["3x3", "stride", "pointwise", "whole groups"], MIXES, ["", "x", "w", "m", "xmb"])
)
def test_zero_points_of_fours(rt: Runtime, name: str, mix: tuple[str, str], zeros: str) -> None:
    attrs, arrays = make_conv(name, mix, zeros)
    check_fours(rt, attrs, arrays)
    if arrays[3] is not None:  # in memory
        arrays[3] = arrays[3].reshape(1)
        check_fours(rt, attrs, arrays)


@pytest.mark.parametrize("name, mix", pairwise([n for n in CASES if CASES[n][0] < 70], MIXES[:2]))
def test_depthwise_fours(rt: Runtime, name: str, mix: tuple[str, str]) -> None:
    check_fours(rt, *make_conv(name, mix, "xb", depthwise=True), name="DepthwiseVnni")
    attrs, arrays = make_conv(name, mix, "x", depthwise=True)
    arrays[3] = arrays[3].reshape(1)  # in memory
    check_fours(rt, attrs, arrays, name="DepthwiseVnni")


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 7])
def test_depthwise_fours_of_any_width(rt: Runtime, columns: int, stride: int, groups: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [values(rng, "u1", 1, 19, 9, 31), values(rng, "i1", 19, 1, 3, columns)]
    arrays += [None, values(rng, "u1", 1).reshape(()), None]
    pads = (1, columns // 2, 1, columns // 2)
    attrs = {"strides": (1, stride), "pads": pads, "dilations": (1, 1), "group": 19}
    check_fours(rt, attrs, arrays, name="DepthwiseVnni", TG=groups)


@pytest.mark.parametrize("tile", [(1, 1), (2, 8), (6, 4), (7, 3), (14, 2), (16, 1)])
@pytest.mark.parametrize("name", ["blocks", "dilated", "far dilated", "pointwise", "rank 3"])
def test_tiles_of_fours(rt: Runtime, name: str, tile: tuple[int, int]) -> None:
    check_fours(rt, *make_conv(name, MIXES[0], "xb"), TW=tile[0], TB=tile[1])


def in_eight_lanes(rt: Runtime) -> Runtime:
    """`rt` as of a processor with AVX-VNNI alone; skips where it has none."""
    if rt.info.byte_dots != "fours" or "avx_vnni" not in cpu_flags():
        pytest.skip("no AVX-VNNI")
    other = copy.copy(rt)
    other.info = dataclasses.replace(rt.info, native_float_width=8)
    return other


@pytest.mark.parametrize("mix", MIXES[:2])
def test_sums_of_eight_lanes(rt: Runtime, mix: tuple[str, str]) -> None:
    short = in_eight_lanes(rt)
    for name in ("3x3", "stride", "pointwise", "whole groups"):
        check_fours(short, *make_conv(name, mix, "xb"))
    check_fours(short, *make_conv("blocks", mix, "xb", depthwise=True), name="DepthwiseVnni")
    check_taken(short, find_kernel("IntegerMatMul", "MatmulVnni"), {}, make_product(13, 64, 37, mix, "an"), (1, 3))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("mix", MIXES[:2])
def test_first_layer_of_fours(rt: Runtime, channels: int, mix: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    arrays = [values(rng, mix[0], 2, channels, 11, 23), values(rng, mix[1], 19, channels, 3, 3)]
    arrays += [None, values(rng, mix[0], 1).reshape(()), None]
    attrs = {"strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    check_fours(rt, attrs, arrays)


def fuse_requantize(*further: DType) -> Expr:
    """Sums scaled by channel, an operand of bytes added, rounded to uint8."""

    def fn(a: Sym, scale: Sym, *rest: Sym) -> Sym:
        real = a.cast(DType.FLOAT32) * scale
        for r in rest:
            real = real + (r.cast(DType.INT32) - 7).cast(DType.FLOAT32)
        return quantized(real, None, DType.UINT8)

    return trace(fn, DType.INT32, DType.FLOAT32, *further)


@pytest.mark.parametrize("kernel", ["ConvDot4", "DepthwiseDot4", "ConvVnni", "DepthwiseVnni"])
@pytest.mark.parametrize("residual", [False, True])
def test_convolution_epilogue(rt: Runtime, kernel: str, residual: bool) -> None:
    rng = np.random.default_rng(1)
    attrs, arrays = make_conv("3x3", MIXES[0], "xb", depthwise="Depthwise" in kernel)
    shape = make_node("IntegerConv", attrs, arrays).y.shape
    # A power of two, so that every device rounds the same numbers.
    arrays.append((2.0 ** rng.integers(-13, -9, (1, shape[1], 1, 1))).astype(np.float32))
    arrays += [values(rng, "u1", *shape)] if residual else []
    attrs["epilogue"] = fuse_requantize(*[DType.UINT8] * residual)
    if kernel.endswith("Vnni"):
        check_fours(rt, attrs, arrays, name=kernel)
    else:
        check_conv(rt, kernel, attrs, arrays)


PRODUCTS = [pytest.param(k, id=k.name) for k in kernels_for("IntegerMatMul")]
"""A new kernel is tested by being registered."""


def product_node(attrs: dict[str, Any], arrays: list[Any], const: tuple[int, ...]) -> Node:
    return make_node("IntegerMatMul", {"trans_a": False, "trans_b": False, **attrs}, arrays, const=const)


def check_product(
    rt: Runtime, attrs: dict[str, Any], arrays: list[Any], const: tuple[int, ...], tile: tuple[int, ...] | None = None
) -> None:
    params = None if tile is None else dict(zip(("TM", "TC", "NX", "MY", "SPLIT"), tile, strict=True))
    kernel = find_kernel("IntegerMatMul", "MatmulDot4")
    check_kernel(rt, kernel, product_node(attrs, arrays, const), arrays, params)


def check_taken(rt: Runtime, kernel: Kernel, attrs: dict[str, Any], arrays: list[Any], const: tuple[int, ...]) -> None:
    """Of any kernel; skips what it refuses."""
    node = product_node(attrs, arrays, const)
    why = kernel.refuse(kernel.problem(node, rt.info))
    if why is not None:
        pytest.skip(why)
    check_kernel(rt, kernel, node, arrays)


def make_product(m: int, n: int, k: int, mix: tuple[str, str], zeros: str, trans: str = "") -> list[Any]:
    rng = np.random.default_rng(0)
    a = values(rng, mix[0], *((k, m) if "a" in trans else (m, k)))
    b = values(rng, mix[1], *((n, k) if "b" in trans else (k, n)))
    a_zero = values(rng, mix[0], 1).reshape(()) if "a" in zeros else None
    b_zero = values(rng, mix[1], n if "n" in zeros else 1) if "b" in zeros or "n" in zeros else None
    return [a, b, a_zero, b_zero]


FACTORS = [((1, 1000, 1280), MIXES[0]), ((37, 52, 8), MIXES[0]), ((3, 5, 7), MIXES[2])]


@pytest.mark.parametrize(
    "factors, const, trans",
    pairwise([*FACTORS, *(((67, 33, 131), m) for m in MIXES)], [(1, 3), (1,), ()], ["", "a", "b"]),
)
@pytest.mark.parametrize("kernel", PRODUCTS)
def test_product(rt: Runtime, kernel: Kernel, factors: Any, const: tuple[int, ...], trans: str) -> None:
    sizes, mix = factors
    attrs = {"trans_a": "a" in trans, "trans_b": "b" in trans}
    check_taken(rt, kernel, attrs, make_product(*sizes, mix, "an", trans), const)


@pytest.mark.parametrize("zeros", ["", "a", "b", "n", "ab"])
@pytest.mark.parametrize("tile", [None, (1, 1, 8, 4, 4), (4, 2, 32, 1, 8), (8, 2, 16, 2, 1), (2, 1, 8, 8, 2)])
def test_product_tiles(rt: Runtime, zeros: str, tile: tuple[int, ...] | None) -> None:
    check_product(in_plain_c(rt), {}, make_product(19, 23, 45, MIXES[0], zeros), (1, 3), tile)


@pytest.mark.parametrize("tile", [None, (4, 2, 32, 1, 8)])
def test_constants_read_as_texels(rt: Runtime, tile: tuple[int, ...] | None) -> None:
    """Of a product and a convolution, where images are preferred and one over the buffer may be long enough."""
    other = as_adreno(in_plain_c(rt))
    check_product(other, {}, make_product(19, 23, 45, MIXES[0], "an"), (1, 3), tile)
    check_conv(other, "ConvDot4", *make_conv("stride", MIXES[0], "xmb"))
    product = product_node({}, make_product(19, 23, 45, MIXES[0], "an"), (1, 3))
    kernel = find_kernel("IntegerMatMul", "MatmulDot4")
    for most, texels in ((72, 1), (71, None)):  # 12 words of 6 blocks of columns
        problem = kernel.problem(product, dataclasses.replace(other.info, image_buffer_max=most))
        (launch,) = kernel.launch(problem, kernel.defaults(problem))
        assert launch.defines.get("TEXELS") == texels


@pytest.mark.parametrize("shapes", [((2, 1, 5, 12), (3, 12, 7)), ((3, 5, 12), (12, 7)), ((2, 5, 12), (2, 12, 7))])
@pytest.mark.parametrize("const", [(), (1,)])
@pytest.mark.parametrize("kernel", PRODUCTS)
def test_stacks(
    rt: Runtime, kernel: Kernel, shapes: tuple[tuple[int, ...], tuple[int, ...]], const: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    arrays = [values(rng, "u1", *shapes[0]), values(rng, "i1", *shapes[1]), np.uint8(100).reshape(()), None]
    check_taken(rt, kernel, {}, arrays, const)


PANELS = [pytest.param(find_kernel("IntegerMatMul", name), id=name) for name in ("MatmulVnni", "MatmulVnniGeneric")]


@pytest.mark.parametrize(
    "mix, zeros, trans, sizes",
    pairwise(MIXES, ["", "a", "b", "n", "an"], ["", "b"], [(1, 70, 64), (13, 64, 37), (5, 3, 2)]),
)
@pytest.mark.parametrize("kernel", PANELS)
def test_panels(
    rt: Runtime, kernel: Kernel, mix: tuple[str, str], zeros: str, trans: str, sizes: tuple[int, int, int]
) -> None:
    check_taken(rt, kernel, {"trans_b": trans == "b"}, make_product(*sizes, mix, zeros, trans), (1, 3))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6])
def test_rows_of_panels(rt: Runtime, rows: int) -> None:
    """A tile's last rows may be fewer; an epilogue sees int32."""
    kernel = find_kernel("IntegerMatMul", "MatmulVnni")
    arrays = make_product(19, 83, 45, MIXES[0], "an")
    arrays.append((2.0 ** np.random.default_rng(1).integers(-13, -9, 83)).astype(np.float32))
    node = product_node({"epilogue": fuse_requantize()}, arrays, (1, 3, 4))
    problem = kernel.problem(node, rt.info)
    if (why := kernel.refuse(problem) or kernel.illegal(problem, {"MR": rows})) is not None:
        pytest.skip(why)
    check_kernel(rt, kernel, node, arrays, {"MR": rows})


def test_product_epilogue(rt: Runtime) -> None:
    arrays = make_product(19, 23, 45, MIXES[0], "an")
    rng = np.random.default_rng(1)
    arrays.append((2.0 ** rng.integers(-13, -9, 23)).astype(np.float32))
    check_product(rt, {"epilogue": fuse_requantize()}, arrays, (1, 3, 4))
