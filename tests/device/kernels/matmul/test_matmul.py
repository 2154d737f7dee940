"""Matrix product kernels against the reference: sizes, broadcasting, transposition, types, epilogues and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.trace_function import Sym, trace
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for

from ....helpers.pairs import pairwise, pairwise_points

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)
KERNELS = [pytest.param(k, id=k.name) for k in kernels_for("MatMul")]

SHAPES = [
    ((7, 13), (13, 5)),
    ((37, 53), (53, 67)),
    ((1, 131), (131, 101)),
    ((29, 17), (17, 1)),
    ((1, 1), (1, 1)),
    ((2, 3, 11, 7), (7, 19)),
    ((11, 7), (2, 7, 19)),
    ((2, 1, 19, 31), (3, 31, 37)),
    ((2, 1, 3, 1, 5, 7), (1, 2, 1, 3, 7, 5)),
    ((3, 8, 64), (3, 64, 48)),
]
EMPTY = [((0, 5), (5, 3)), ((3, 5), (5, 0)), ((3, 0), (0, 37)), ((0, 3, 5), (0, 5, 3)), ((2, 3, 0), (2, 0, 5))]


def random(shape: tuple[int, ...], dtype: str) -> Array:
    x = rng.standard_normal(shape)
    return (x * 9).astype(dtype) if np.dtype(dtype).kind in "iu" else x.astype(dtype)


def check(
    rt: Runtime,
    kernel: Kernel,
    a: Array,
    b: Array,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    const: bool = False,
    params: dict[str, Any] | None = None,
    precision: DType | None = None,
    tolerance: float = 1e-5,
) -> None:
    """The kernel's product is the reference's within `tolerance` of the largest element; integers exactly."""
    a = np.ascontiguousarray(np.swapaxes(a, -1, -2)) if trans_a else a
    b = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if trans_b else b
    attrs = {"trans_a": trans_a, "trans_b": trans_b}
    node = make_node("MatMul", attrs, [a, b], const=(1,) if const else (), precision=precision)
    why = kernel.refuse(kernel.problem(node, rt.info)) or (
        params and kernel.illegal(kernel.problem(node, rt.info), params)
    )
    if why:
        pytest.skip(why)
    for binding in kernel.bindings(kernel.problem(node, rt.info)):
        bound = make_node("MatMul", attrs, [a, b], const=(1,) if const else (), binding=binding, precision=precision)
        (got,) = run_node(rt, kernel, bound, [a, b], params)
        close(got, node.op.reference([a, b])[0], tolerance)


def close(got: Array, want: Array, tolerance: float) -> None:
    if want.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    elif want.size:
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("a, b, const", [(a, b, i % 2 == 1) for i, (a, b) in enumerate(SHAPES + EMPTY)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_shapes(rt: Runtime, kernel: Kernel, a: tuple[int, ...], b: tuple[int, ...], const: bool) -> None:
    check(rt, kernel, random(a, "float32"), random(b, "float32"), const=const)


TRANSPOSED = [((2, 23, 37), (2, 37, 41)), ((3, 67), (67, 35)), ((2, 5, 0), (0, 3))]


@pytest.mark.parametrize(
    "shapes, trans, const", pairwise(TRANSPOSED, [(True, False), (False, True), (True, True)], [False, True])
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_transposed(rt: Runtime, kernel: Kernel, shapes: Any, trans: tuple[bool, bool], const: bool) -> None:
    (a, b), (trans_a, trans_b) = shapes, trans
    check(rt, kernel, random(a, "float32"), random(b, "float32"), trans_a=trans_a, trans_b=trans_b, const=const)


@pytest.mark.parametrize(
    "dtype, trans_b", [("float64", False), ("int32", True), ("int64", False), ("uint32", False), ("uint64", True)]
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_types(rt: Runtime, kernel: Kernel, dtype: str, trans_b: bool) -> None:
    if dtype == "float64" and not rt.info.fp64:
        pytest.skip("no double precision")
    check(rt, kernel, random((2, 13, 35), dtype), random((2, 35, 39), dtype), trans_b=trans_b, tolerance=1e-12)


@pytest.mark.parametrize("const", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_half_storage(rt: Runtime, kernel: Kernel, const: bool) -> None:
    a, b = random((13, 67), "float32"), random((67, 41), "float32")
    check(rt, kernel, a, b, const=const, precision=DType.FLOAT16, tolerance=1e-2)


@pytest.mark.parametrize("kernel", KERNELS)
def test_bfloat16(rt: Runtime, kernel: Kernel) -> None:
    dtype = DType.BFLOAT16.np
    a, b = random((5, 19), "float32").astype(dtype), random((19, 37), "float32").astype(dtype)
    check(rt, kernel, a, b, tolerance=1e-2)


@pytest.mark.parametrize("shape, columns", [((2, 11, 29), 37), ((1, 29), 7)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_epilogue(rt: Runtime, kernel: Kernel, shape: tuple[int, ...], columns: int) -> None:
    """relu(product + bias) * residual, with a bias by column and a residual like the output."""

    def chain(x: Sym, bias: Sym, residual: Sym) -> Sym:
        return (x + bias).call("max", 0.0) * residual

    a, b, bias = random(shape, "float32"), random((shape[-1], columns), "float32"), random((columns,), "float32")
    residual = random((*shape[:-1], columns), "float32")
    attrs = {"trans_a": False, "trans_b": False, "epilogue": trace(chain, *[DType.FLOAT32] * 3)}
    arrays = [a, b, bias, residual]
    node = make_node("MatMul", attrs, arrays, const=(1, 2))
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    for binding in kernel.bindings(kernel.problem(node, rt.info)):
        bound = make_node("MatMul", attrs, arrays, const=(1, 2), binding=binding)
        (got,) = run_node(rt, kernel, bound, arrays)
        close(got, np.maximum(a @ b + bias, 0) * residual, 1e-5)


@pytest.mark.parametrize("form", ["panels", "rows"])
@pytest.mark.parametrize("mr, nv, ks", [(8, 1, 1), (7, 2, 1), (5, 3, 1), (4, 4, 1), (3, 2, 2), (2, 1, 4), (1, 4, 4)])
def test_panel_parameters(rt: Runtime, form: str, mr: int, nv: int, ks: int) -> None:
    (kernel,) = (k for k in kernels_for("MatMul") if k.name == "MatmulPanelsCpu")
    for rows in (0, 16):
        params = {"FORM": form, "MR": mr, "NV": nv, "KS": ks, "ROWS": rows}
        check(rt, kernel, random((2, 47, 29), "float32"), random((2, 29, 79), "float32"), params=params)


@pytest.mark.parametrize("form", ["panels", "rows"])
@pytest.mark.parametrize("mr, nv, ks", [(8, 3, 1), (3, 2, 4), (1, 2, 4)])
def test_panels_in_chunks(rt: Runtime, form: str, mr: int, nv: int, ks: int) -> None:
    """Several chunks of a panel, the last one shorter, and more tiles than use one in turn."""
    (kernel,) = (k for k in kernels_for("MatMul") if k.name == "MatmulPanelsCpu")
    params = {"FORM": form, "MR": mr, "NV": nv, "KS": ks, "ROWS": 256}
    for rows in (83, 303):  # the latter more than a core's cache is expected to hold
        check(rt, kernel, random((rows, 911), "float32"), random((911, 107), "float32"), const=True, params=params)


def test_new_sizes_build_nothing_new(rt: Runtime) -> None:
    """With the same parameters, which defaults choose from a short list, where vectors of four divide both or none."""
    for kernel in kernels_for("MatMul"):
        built, params = set(), None
        for m, n, k in ((160, 96, 64), (203, 132, 60)):
            node = make_node(
                "MatMul",
                {"trans_a": False, "trans_b": False},
                [np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)],
                const=(1,),
            )
            if kernel.refuse(kernel.problem(node, rt.info)) is None:
                params = params or kernel.defaults(kernel.problem(node, rt.info))
                for launch in kernel.launch(kernel.problem(node, rt.info), params):
                    built.add((launch.entry, tuple(sorted(launch.defines.items())), launch.prelude))
        assert len(built) <= 1, kernel.name


def test_sums_stay_accurate(rt: Runtime) -> None:
    """16384 terms of one sign: float sums stay within 1e-5 of the exact ones."""
    a, b = rng.random((3, 16384), np.float32), rng.random((16384, 33), np.float32)
    exact = a.astype(float) @ b.astype(float)
    for kernel in kernels_for("MatMul"):
        node = make_node("MatMul", {"trans_a": False, "trans_b": False}, [a, b], const=(1,))
        if kernel.refuse(kernel.problem(node, rt.info)) is None:
            binding = kernel.bindings(kernel.problem(node, rt.info))[0]
            node = make_node("MatMul", {"trans_a": False, "trans_b": False}, [a, b], const=(1,), binding=binding)
            (got,) = run_node(rt, kernel, node, [a, b])
            assert np.abs(got / exact - 1).max() < 1e-5, kernel.name


TILES = [
    (8, 8, 8, 8, 8, 1, 2, 1, 8),
    (16, 8, 4, 8, 16, 2, 1, 2, 4),
    (4, 8, 4, 4, 16, 8, 1, 1, 16),
    (8, 4, 8, 4, 4, 4, 2, 8, 16),
]


@pytest.mark.parametrize(
    "tile, trans, const, precision",
    pairwise(TILES, [(False, False), (True, False), (False, True)], [False, True], [None, DType.FLOAT16]),
)
def test_tile_parameters(
    rt: Runtime, tile: tuple[int, ...], trans: tuple[bool, bool], const: bool, precision: DType | None
) -> None:
    """Edges that no tile divides; sizes that four divides, and that it does not."""
    trans_a, trans_b = trans
    (kernel,) = (k for k in kernels_for("MatMul") if k.name == "MatmulLocalTile")
    for m, k, n in ((92, 172, 84), (71, 139, 53)) if tile[7] == 1 else ((92, 172, 84), (71, 139, 52)):
        a, b = random((m, k), "float32"), random((k, n), "float32")
        tolerance = 1e-2 if precision else 1e-5
        arguments: dict[str, Any] = {"trans_a": trans_a, "trans_b": trans_b, "const": const, "precision": precision}
        check(rt, kernel, a, b, params=dict(zip(kernel.space, tile, strict=True)), tolerance=tolerance, **arguments)


def test_tile_parts_of_batches(rt: Runtime) -> None:
    (kernel,) = (k for k in kernels_for("MatMul") if k.name == "MatmulLocalTile")
    params = dict(zip(kernel.space, (8, 8, 4, 4, 8, 1, 2, 4, 8), strict=True))
    check(rt, kernel, random((2, 1, 19, 131), "float32"), random((3, 131, 36), "float32"), params=params)
    check(rt, kernel, random((3, 7, 131), "float32"), random((131, 36), "float32"), const=True, params=params)


@pytest.mark.parametrize("trans_a, trans_b", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype, m", [("float32", 1), ("float32", 5), ("int32", 3)])
def test_few_rows(rt: Runtime, dtype: str, m: int, trans_a: bool, trans_b: bool) -> None:
    """Vectors of b, which end with its rows, and single elements; terms and columns are no whole number of turns."""
    kernel = next(k for k in kernels_for("MatMul") if k.name == "MatmulSkinnySplitK")
    a, b = random((2, 1, m, 628), dtype), random((3, 628, 76), dtype)
    node = make_node("MatMul", {"trans_a": False, "trans_b": trans_b}, [a, np.swapaxes(b, -1, -2) if trans_b else b])
    points = list(kernel.points(kernel.problem(node, rt.info)))
    assert {point["PACK"] for point in points} == {1, 4}
    for params in pairwise_points(points) if m == 1 and not trans_a else points[::5]:
        check(rt, kernel, a, b, trans_a=trans_a, trans_b=trans_b, params=params)
