"""Elementwise kernels against NumPy: every function, element types, broadcasting, coordinates and packed layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.expression import Expr, In
from opalite.expr.function_table import FUNCTIONS, Result
from opalite.expr.trace_function import Builder, Sym, call, cast_expr, coord, trace, where
from opalite.ir import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels import kernels_for
from opalite.kernels.elementwise.broadcast_row_major import ElementwiseFlat
from opalite.ops.affine_quantization import dequantized, divided

F32, F16, F64, BF16 = DType.FLOAT32, DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16
I8, I32, I64, U8, U64, BOOL = DType.INT8, DType.INT32, DType.INT64, DType.UINT8, DType.UINT64, DType.BOOL
TOLERANCE = {F32: 3e-6, F64: 1e-12, F16: 2e-3, BF16: 2e-2}

PLAIN = [row.name for row in FUNCTIONS.values() if row.result in (Result.SAME, Result.BOOL)]


def arguments(fn: str) -> int:
    return FUNCTIONS[fn].arity


def sample(dtype: DType, count: int, seed: int) -> Any:
    """Ordinary numbers mixed with the edges of the type."""
    rng = np.random.default_rng(seed)
    if dtype is BOOL:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.is_float:
        edges = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-6, 1e6, 300, -300, 88, -86]
        x = np.concatenate([edges, rng.standard_normal(count - len(edges)) * rng.choice([0.1, 3, 30])])
    else:
        ends = np.iinfo(dtype.np)
        small = rng.integers(-5 if ends.min else 0, 6, count - 12)
        wide = rng.integers(ends.min, ends.max, 8, dtype.np, endpoint=True)
        x = np.concatenate([small.astype(dtype.np), wide, np.array([ends.min, ends.max, 0, 1], dtype.np)])
    with np.errstate(over="ignore"):
        x = x.astype(dtype.np)
    rng.shuffle(x)
    return x


def check(
    rt: Runtime,
    expr: Expr,
    arrays: Sequence[Any],
    *,
    shape: tuple[int, ...] | None = None,
    const: Sequence[int] = (),
    precision: DType | None = None,
    tolerance: float = 0.0,
    expect_packed: bool = False,
    images: bool = True,
) -> None:
    """Every kernel with every binding computes `expr` as NumPy does; those on images, whose text of a function is the
    same, if they are asked for."""
    attrs = {"expr": expr, "shape": shape}
    plain = make_node("Elementwise", attrs, arrays, const=const, precision=precision)
    with np.errstate(all="ignore"):
        want = plain.op.reference(arrays)[0]
    ran = []
    for kernel in kernels_for("Elementwise"):
        if kernel.refuse(kernel.problem(plain, rt.info)) is not None or (
            kernel.name.startswith("Image") and not images
        ):
            continue
        for binding in kernel.bindings(kernel.problem(plain, rt.info)):
            node = make_node("Elementwise", attrs, arrays, const=const, binding=binding, precision=precision)
            got = run_node(rt, kernel, node, arrays)[0]
            compare(got, want, tolerance or TOLERANCE.get(precision or expr.dtype, 0), expr, kernel.name)
            ran.append(kernel.name)
    assert "ElementwiseFlat" in ran
    assert not expect_packed or "ElementwisePacked" in ran


def compare(got: Any, want: Any, tolerance: float, expr: Expr, kernel: str) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if not tolerance:
        np.testing.assert_array_equal(got, want, err_msg=f"{kernel}: {expr}")
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    if tolerance > 1e-3:  # half overflows in the reference's intermediate results, not in float arithmetic
        a, b = np.where(np.isfinite(b), a, 0), np.where(np.isfinite(b), b, 0)
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 0.2, err_msg=f"{kernel}: {expr}")


@pytest.mark.parametrize("fn", [f for f in PLAIN if FUNCTIONS[f].floats is not None])
def test_functions_of_floats(rt: Runtime, fn: str) -> None:
    check(rt, call(fn, *[F32] * arguments(fn)), [sample(F32, 101, k) for k in range(arguments(fn))], images=False)


@pytest.mark.parametrize("fn", ["erf", "tanh"])
def test_limits_are_reached_exactly(rt: Runtime, fn: str) -> None:
    """1 + erf(x) must be zero where Gelu multiplies it by a large x."""
    x = np.float32([10, 88, 1e4, 1e30, 3e38, np.inf])
    check(rt, call(fn, F32), [np.concatenate([x, -x])], tolerance=1e-12)


@pytest.mark.parametrize("dtype", [F16, BF16, F64], ids=str)
@pytest.mark.parametrize("fn", ["exp", "tanh", "erf", "sigmoid", "rint", "max", "mod", "pow", "lt", "isnan"])
def test_float_types(rt: Runtime, fn: str, dtype: DType) -> None:
    if dtype is F64 and not rt.info.fp64:
        pytest.skip("no double precision")
    check(rt, call(fn, *[dtype] * arguments(fn)), [sample(dtype, 67, k) for k in range(arguments(fn))])


OF_INTEGERS = [f for f in PLAIN if FUNCTIONS[f].integers is not None]


# Each function of two of the types, in turn.
@pytest.mark.parametrize(
    "fn, dtype", [(fn, (I8, I32, U64)[(i + j) % 3]) for i, fn in enumerate(OF_INTEGERS) for j in (0, 1)], ids=str
)
def test_functions_of_integers(rt: Runtime, fn: str, dtype: DType) -> None:
    arrays = [sample(dtype, 67, k) for k in range(arguments(fn))]
    if fn == "pow":
        arrays[1] = (arrays[1] % 9).astype(dtype.np)
    check(rt, call(fn, *[dtype] * arguments(fn)), arrays)


BOOLEAN = ("not", "and", "or", "xor", "eq", *(f for f in PLAIN if FUNCTIONS[f].booleans is not None))


@pytest.mark.parametrize("fn", [f for f in BOOLEAN if f not in ("add", "mul")])  # of numbers in NumPy
def test_functions_of_bools(rt: Runtime, fn: str) -> None:
    check(rt, call(fn, *[BOOL] * arguments(fn)), [sample(BOOL, 37, k) for k in range(arguments(fn))])


@pytest.mark.parametrize("source, target", [(F32, I32), (I32, F32), (F32, DType.UINT32), (I8, U8), (F64, I64)], ids=str)
def test_bits(rt: Runtime, source: DType, target: DType) -> None:
    if F64 in (source, target) and not rt.info.fp64:
        pytest.skip("no double precision")
    x = sample(source, 67, 5)
    expr = trace(lambda v: v.typed("bits", target).typed("bits", source), source)
    check(rt, trace(lambda v: v.typed("bits", target), source), [x], tolerance=0 if target is not F32 else 1e-30)
    check(rt, expr, [x], tolerance=0 if source is not F32 else 1e-30)


@pytest.mark.parametrize("target", [F32, F16, I8, I32, I64, U8, DType.UINT32, U64, BOOL], ids=str)
@pytest.mark.parametrize("source", [F32, F16, BF16, I8, I64, U64, BOOL], ids=str)
def test_casts(rt: Runtime, source: DType, target: DType) -> None:
    if source is not target:
        check(rt, cast_expr(source, target), [sample(source, 83, 5)])


@pytest.mark.parametrize("target", [I8, U8, DType.INT16, I32, DType.UINT32, I64, U64], ids=str)
@pytest.mark.parametrize("source", [F32, F16, I32, I64, U64], ids=str)
def test_saturate(rt: Runtime, source: DType, target: DType) -> None:
    check(rt, trace(lambda x: x.typed("saturate", target), source), [sample(source, 61, 6)])


@pytest.mark.parametrize("dtype", [F32, F16, U8, I64], ids=str)
def test_where(rt: Runtime, dtype: DType) -> None:
    arrays = [sample(BOOL, 53, 0), sample(dtype, 53, 1), sample(dtype, 53, 2)]
    check(rt, call("where", BOOL, dtype, dtype), arrays)


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -3.5e38, np.inf, -np.inf, np.nan])
def test_literals(rt: Runtime, value: float) -> None:
    check(rt, trace(lambda x: x.call("max", value) + value, F32), [sample(F32, 37, 7)])


@pytest.mark.parametrize("dtype", [I8, I32, I64, U8, U64], ids=str)
def test_extreme_integer_literals(rt: Runtime, dtype: DType) -> None:
    ends = np.iinfo(dtype.np)
    expr = trace(lambda x: where(x.eq(ends.min), x + ends.max, x.call("bitxor", ends.min)), dtype)
    check(rt, expr, [sample(dtype, 37, 8)])


POWERS = [0.0, 1.0, 2.0, 3.0, 4.0, 0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 1.7, 2.6, 5.0]


@pytest.mark.parametrize("exponent", [*POWERS, *(-p for p in POWERS[1:])])
def test_constant_powers(rt: Runtime, exponent: float) -> None:
    """NumPy's powers of NaN, infinities, zeros, negative and ordinary numbers."""
    rng = np.random.default_rng(9)
    edges = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-30, -2.5, 3e8, -7]
    x = np.concatenate([edges, rng.random(37) * 4, np.exp2(rng.uniform(-30, 30, 63))]).astype(np.float32)
    if exponent == 0.5:
        x = x[x != -np.inf]  # whose power NumPy takes by sqrt
    check(rt, call("pow", F32, F32), [x, np.float32(exponent)], const=[1], images=False)


def test_powers_are_accurate(rt: Runtime) -> None:
    """Results of every magnitude, also beside 1, where a power is the product of a small and a large number."""
    rng = np.random.default_rng(10)
    count = 20000
    x = np.concatenate([np.exp2(rng.uniform(-149, 128, count)), rng.uniform(0.5, 2, count)]).astype(np.float32)
    y = (rng.uniform(-125, 127.9, 2 * count) / np.log2(x.astype(np.float64))).astype(np.float32)
    keep = np.isfinite(y)
    node = make_node("Elementwise", {"expr": call("pow", F32, F32), "shape": None}, [x[keep], y[keep]])
    kernel = next(k for k in kernels_for("Elementwise") if k.name == "ElementwiseFlat")
    (got,) = run_node(rt, kernel, node, [x[keep], y[keep]])
    want = np.power(x[keep].astype(np.float64), y[keep].astype(np.float64))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-7 if rt.info.on_host and rt.info.fp64 else 4e-6)


def test_powers_of_special_numbers(rt: Runtime) -> None:
    ends = [0.0, 1, 2, 3, 0.5, 1.5, 2.5, np.inf, np.nan, 1e-40, 3e38, 1e9, 16777217, 8388607.5]
    numbers = np.array([*ends, *(-v for v in ends)], np.float32)
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(numbers, numbers))
    check(rt, call("pow", F32, F32), [x, y])
    check(rt, trace(lambda a, b: 1.0 / a.call("pow", b), F32, F32), [x, y])  # tells zeros apart


def test_integer_to_a_float_power(rt: Runtime) -> None:
    x = np.arange(1, 38, dtype=np.int32)
    check(rt, Expr(call("pow", I32, I32).instrs, (I32, F32)), [x, np.full(37, 2.0, np.float32)])


@pytest.mark.parametrize(
    "shapes",
    [
        [(), ()],
        [(1,), (7, 1)],
        [(5, 37), (37,)],
        [(5, 37), (5, 1)],
        [(2, 3, 11, 13), (3, 1, 1)],
        [(2, 3, 11, 13), (1, 1, 11, 1)],
        [(2, 1, 11, 1), (1, 3, 1, 13)],
        [(2, 1, 3, 1, 2, 1, 3), (1, 3, 1, 2, 1, 5, 1)],
        [(4099,), (1,)],
        [(0, 3), (1, 3)],
        [(2, 3, 0), (1,)],
    ],
)
def test_broadcasting(rt: Runtime, shapes: list[tuple[int, ...]]) -> None:
    arrays = [np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate(shapes)]
    check(rt, trace(lambda a, b: a * 2.0 - b, F32, F32), arrays)


def test_expand(rt: Runtime) -> None:
    x = np.random.default_rng(0).standard_normal((3, 1, 5)).astype(np.float32)
    check(rt, trace(lambda a: a + 0.0, F32), [x], shape=(2, 3, 7, 5))


def test_no_operand(rt: Runtime) -> None:
    b = Builder([])
    check(rt, b.finish((coord(b, 0) * 3 + 1).ref), [], shape=(37,))


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_coordinates(rt: Runtime, axes: tuple[int, ...]) -> None:
    b = Builder([I64])
    value = Sym(b, In(0))
    for axis in axes:
        value = value + coord(b, axis) * (axis + 2)
    x = np.random.default_rng(1).integers(0, 9, (3, 1, 23))
    check(rt, b.finish(value.ref), [x], shape=(3, 5, 23))


def test_many_operands_of_many_types(rt: Runtime) -> None:
    dtypes = [F32, F16, I32, U8, BOOL, I64] * 3

    def total(*xs: Sym) -> Sym:
        value = xs[0]
        for x in xs[1:]:
            value = value + x.cast(F32)
        return value

    arrays = [np.random.default_rng(k).integers(0, 2, (3, 37) if k % 4 else (37,)).astype(d.np)
              for k, d in enumerate(dtypes)]  # fmt: skip
    check(rt, trace(total, *dtypes), arrays)


def test_too_many_operands_are_refused(rt: Runtime) -> None:
    node = make_node("Elementwise", {"expr": trace(lambda *xs: xs[0] + xs[1], *[F32] * 40)}, [np.zeros(3, "f")] * 40)
    kernel = ElementwiseFlat()
    assert "operands" in str(kernel.refuse(kernel.problem(node, rt.info)))


@pytest.mark.parametrize("value", [0.5, 0.1234])
@pytest.mark.parametrize("dtype", [F32, F16, I32, BOOL], ids=str)
def test_constant_scalars(rt: Runtime, dtype: DType, value: float) -> None:
    arrays = [sample(dtype, 37, 3), np.array([value]).astype(dtype.np)]
    check(rt, call("mul", dtype, dtype), arrays, const=[1])


@pytest.mark.parametrize("precision", [None, F16])
@pytest.mark.parametrize("shape", [(2, 3, 7, 11), (1, 37, 5, 5), (2, 16, 13), (1, 33, 1, 1), (2, 0, 3, 3)])
def test_packed(rt: Runtime, shape: tuple[int, ...], precision: DType | None) -> None:
    rng = np.random.default_rng(4)
    channels = (1, shape[1], *[1] * (len(shape) - 2))
    spatial = (shape[0], 1, *shape[2:])
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (shape, channels, spatial, shape, (1,))]
    expr = trace(lambda x, c, s, y, k: (x * c + s - y).call("sigmoid") + k, *[F32] * 5)
    tolerance = 1e-2 if precision else 0.0
    check(rt, expr, arrays, const=[1, 4], precision=precision, tolerance=tolerance, expect_packed=True)
    check(rt, expr, arrays, precision=precision, tolerance=tolerance, expect_packed=True)


def test_nan_in_extremes(rt: Runtime) -> None:
    x, y = np.ones(35, np.float32), np.ones(35, np.float32)
    x[3] = y[5] = x[34] = np.nan
    for fn in ("max", "min"):
        check(rt, call(fn, F32, F32), [x, y])
        check(rt, trace(lambda a, fn=fn: a.call(fn, 0.5), F32), [x])


@pytest.mark.parametrize("vec", [1, 2, 4, 8, 16])
def test_widths(rt: Runtime, vec: int) -> None:
    x = sample(F32, 131, 11).reshape(1, 131)
    y = sample(F32, 131, 12).reshape(1, 131)
    expr = trace(lambda a, b: where(a < b, a.call("exp"), b.call("erf")), F32, F32)
    node = make_node("Elementwise", {"expr": expr}, [x, y])
    got = run_node(rt, ElementwiseFlat(), node, [x, y], {"VEC": vec, "ITEMS": 3})[0]
    with np.errstate(all="ignore"):
        want = node.op.reference([x, y])[0]
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["u1", "i1"])
@pytest.mark.parametrize("channels", [16, 19])
def test_bytes_in_blocks(rt: Runtime, kind: str, channels: int) -> None:
    """Quantising, dequantising, and a sum of both kinds of operands, as between convolutions of bytes."""
    rng = np.random.default_rng(0)
    dtype, shape = DType.of(np.dtype(kind)), (2, channels, 5, 7)
    q, real = sample(dtype, 2 * channels * 35, 0).reshape(shape), (rng.standard_normal(shape) * 9).astype(np.float32)
    scale, zero = np.float32(0.0371), np.asarray(7, kind)
    factor = rng.standard_normal((1, channels, 1, 1)).astype(np.float32)
    packed = rt.info.is_cpu and rt.info.byte_dots == "fours"
    of_reals = trace(lambda x, s, z: divided(x, s, z, dtype), F32, F32, dtype)
    check(rt, of_reals, [real, scale, zero], const=(1, 2), expect_packed=packed)
    of_bytes = trace(lambda x, s, z: dequantized(x, s, z), dtype, F32, dtype)
    check(rt, of_bytes, [q, scale, zero], const=(1, 2), expect_packed=packed)
    both = trace(lambda x, s, z, f, y: divided(dequantized(x, s, z) * f + y, s, z, dtype), dtype, F32, dtype, F32, F32)
    check(rt, both, [q, scale, zero, factor, real], const=(1, 2, 3), expect_packed=packed)


@pytest.mark.parametrize("scale", [0.1, 1 / 3, 3.7e-5, 1.9999999, 1e-25, 7e19])
def test_quotients_of_quantised_chains_are_those_of_division(rt: Runtime, scale: float) -> None:
    """A reciprocal and one correction, where the scale is of ordinary size."""
    rng = np.random.default_rng(1)
    steps = np.float32(scale) * rng.integers(-200, 200, 4000).astype(np.float32)
    near = steps * (1 + rng.integers(-3, 4, 4000) * np.float32(2**-23))
    halves = np.float32(scale) * (rng.integers(-200, 200, 4000) + np.float32(0.5))
    ends = np.float32([0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-40])
    x = np.concatenate([steps, near, halves, ends]).astype(np.float32)
    expr = trace(lambda v, s: divided(v, s, None, I8), F32, F32)
    check(rt, expr, [x, np.float32(scale)], const=(1,))
