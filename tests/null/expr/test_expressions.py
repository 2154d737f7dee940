"""Expressions as data: building, text form, NumPy meaning, and the OpenCL C made of them (without a device)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.expr.expression import Expr, In, Instr, Lit, Tmp, evaluate, evaluator
from opalite.expr.function_table import FUNCTIONS, Function, Result
from opalite.expr.parse import parse_expr
from opalite.expr.trace_function import Builder, Sym, bind, call, cast_expr, coord, trace, where
from opalite.ir import DeviceInfo, DType, TensorType
from opalite.kernels.codegen.expression_code import generate, generation_refusal
from opalite.kernels.codegen.vector_types import WIDTHS, Vec, compute_type, load, number, store
from opalite.kernels.elementwise.broadcast_row_major import make_broadcast_loop
from opalite.ops.elementwise import Elementwise

F32, F16, F64, BF16 = DType.FLOAT32, DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16
I8, I32, I64, U8, U32, U64, BOOL = (
    DType.INT8,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.UINT32,
    DType.UINT64,
    DType.BOOL,
)
CPU = DeviceInfo(kind="cpu", fp64=True)
GPU = DeviceInfo(kind="gpu")
PLAIN = [row for row in FUNCTIONS.values() if row.result is not Result.GIVEN]


def dtypes_of(fn: str, dtype: DType) -> list[DType]:
    return [BOOL, dtype, dtype] if fn == "where" else [dtype] * FUNCTIONS[fn].arity


def apply(expr: Expr, *arrays: Any) -> list[Any]:
    return list(evaluate(expr, arrays, np.broadcast_shapes(*(a.shape for a in arrays))))


# -- Building --------------------------------------------------------------------------------------------------


def test_trace_shares_equal_instructions_and_folds_constants() -> None:
    expr = trace(lambda x: (x + 1.0) * (x + 1.0) + (x.call("exp") * 0.0 + 2.0), F32)
    assert str(expr).count("add($0, 1.0:f32)") == 1
    b = Builder([F32])
    assert b.emit("add", [Lit(1.0, F32), Lit(2.0, F32)]) == Lit(3.0, F32)
    assert not b.instrs


@pytest.mark.parametrize(("dtype", "bound"), [(F16, 1.2), (BF16, 1.203)])
def test_literals_beside_halves_are_not_rounded(dtype: DType, bound: float) -> None:
    """They are attributes of float32, and constants of 16 bits need no rounding. General programs have them so, too."""
    expr = trace(lambda x: where(x > bound, x, 0), dtype)
    nearest = np.asarray([bound], dtype.np)
    assert float(nearest[0]) > bound
    assert apply(expr, nearest) == list(nearest)
    code = generate(expr, 1, ["x"], device=CPU)
    assert any(number(bound, "float") in s for s in code.statements)


def test_what_is_computed_of_literals_is_not_rounded_to_half() -> None:
    """As where one of them is an operand; where the model casts it is."""
    b = Builder([F16])
    third = Sym(b, Lit(1.0, F16)) / Sym(b, Lit(3.0, F16))
    assert isinstance(third.ref, Lit)
    assert third.ref.value == float(np.float32(1) / np.float32(3))
    cast = b.emit("cast", [Lit(1 / 3, F32)], F16)
    assert isinstance(cast, Lit)
    assert cast.value == float(np.float16(1 / 3))


def test_finish_drops_what_nothing_reads() -> None:
    b = Builder([F32])
    x = Sym(b, In(0))
    x.call("sin")
    assert str(b.finish((x * 3.0).ref)) == "mul($0, 3.0:f32)"


def test_results_that_are_operands_or_literals_still_have_an_instruction() -> None:
    assert str(trace(lambda x, y: y, F32, F32)) == "cast<f32>($1)"
    assert str(trace(lambda x: x, F32)) == "$0"
    b = Builder([])
    assert b.finish(Lit(2, I32)).dtype is I32


def test_bind_replaces_operands_and_folds() -> None:
    expr = trace(lambda x, y, z: x * (y + z), F32, F32, F32)
    bound = bind(expr, {1: Lit(2.0, F32), 2: Lit(3.0, F32)})
    assert str(bound) == "mul($0, 5.0:f32)"
    assert bound.dtypes == expr.dtypes


def test_numbers_take_the_other_side_s_type() -> None:
    assert trace(lambda x: 1 - x, F32).instrs[0].args[0] == Lit(1.0, F32)
    assert trace(lambda x: x + 2.0, I64).instrs[0].args[1] == Lit(2, I64)
    assert trace(lambda x: 1.0 / x, F16).dtype is F16
    assert trace(lambda x: x > 0, F32).dtype is BOOL


# -- Text ------------------------------------------------------------------------------------------------------

TEXTS = [
    (trace(lambda x, y: x * y + 1.0, F32, F32), [F32, F32]),
    (trace(lambda x: where(x < 0.0, x.call("exp") - 1.0, x), F32), [F32]),
    (cast_expr(I64, F16), [I64]),
    (trace(lambda x: x.call("rint").typed("saturate", U8), F32), [F32]),
    (trace(lambda x: where(x.eq(True), x, False), BOOL), [BOOL]),
    (trace(lambda x: x.call("max", -math.inf), F64), [F64]),
    (Expr((), (F32,)), [F32]),
]


@pytest.mark.parametrize("expr, dtypes", TEXTS, ids=lambda v: str(v) if isinstance(v, Expr) else "")
def test_text_reads_back(expr: Expr, dtypes: list[DType]) -> None:
    assert parse_expr(str(expr), dtypes) == expr


def test_text_of_coordinates_reads_back() -> None:
    b = Builder([I64])
    expr = b.finish((Sym(b, In(0)) + coord(b, 1)).ref)
    assert expr.uses_coords
    assert parse_expr(str(expr), [I64]) == expr


@pytest.mark.parametrize("text, reason", [("exp $0", "not an instruction"), ("frobnicate($0)", "unknown function")])
def test_bad_text(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_expr(text, [F32])


# -- Meaning ---------------------------------------------------------------------------------------------------


def ints(*values: int, dtype: DType = I32) -> Any:
    return np.array(values, dtype.np)


def test_integer_division_is_toward_zero_and_never_traps() -> None:
    a, b = ints(7, -7, 7, -7, 5, -(2**31), -(2**31)), ints(2, 2, -2, -2, 0, -1, 2)
    assert apply(call("div", I32, I32), a, b) == [3, -3, -3, 3, 0, -(2**31), -(2**30)]
    assert apply(call("fmod", I32, I32), a, b) == [1, -1, 1, -1, 0, 0, 0]
    assert apply(call("mod", I32, I32), a, b) == [1, 1, -1, -1, 0, 0, 0]


def test_integer_powers_wrap_around() -> None:
    a, b = ints(3, -2, 2, 1, -1, -1, 0, 2), ints(4, 3, -1, -5, -2, -3, 0, 33)
    assert apply(call("pow", I32, I32), a, b) == [81, -8, 0, 1, 1, -1, 1, 0]


def test_casts_of_floats() -> None:
    x = np.array([1.9, -1.9, np.nan, 3e9, -3e9, np.inf, -np.inf, 300.0], np.float32)
    assert apply(cast_expr(F32, I32), x) == [1, -1, 0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 300]
    assert apply(cast_expr(F32, U8), x)[:3] == [1, 255, 0]
    assert apply(cast_expr(F32, U8), x)[-1] == 300 - 256
    assert apply(cast_expr(F32, U32), x)[1] == 2**32 - 1
    assert apply(cast_expr(F32, U64), x)[5] == 2**64 - 1
    assert apply(cast_expr(F32, BOOL), np.array([0.0, -0.0, np.nan, 0.1], np.float32)) == [False, False, True, True]


def test_saturate_is_exact() -> None:
    x = np.array([2**62 + 1, -5, 300], np.int64)
    assert apply(trace(lambda v: v.typed("saturate", I64), I64), x) == x.tolist()
    assert apply(trace(lambda v: v.typed("saturate", U8), I64), x) == [255, 0, 255]
    assert apply(trace(lambda v: v.typed("saturate", I8), F32), np.array([np.nan, np.inf, -1e9], "f")) == [0, 127, -128]


def test_bfloat16_counts_as_a_float() -> None:
    x = np.array([1.5, -2.5, np.nan]).astype(BF16.np)
    assert apply(cast_expr(BF16, I32), x) == [1, -2, 0]
    assert apply(call("div", BF16, BF16), x[:2], np.array([2.0, 2.0]).astype(BF16.np)) == [0.75, -1.25]


def test_rint_is_half_to_even() -> None:
    assert apply(call("rint", F32), np.array([0.5, 1.5, 2.5, -0.5], np.float32)) == [0, 2, 2, 0]
    assert apply(call("rint", I64), np.array([2**62 + 1])) == [2**62 + 1]


# -- OpenCL C --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
def test_every_function_has_the_opencl_forms_that_its_row_says(row: Function, width: int) -> None:
    """And an answer of its own type in NumPy; on types without a form both say so."""
    assert row.floats is not None or row.integers is not None
    for dtype in (F32, F16, F64, I32, U8, I64, BOOL):
        dtypes = dtypes_of(row.name, dtype)
        expr = call(row.name, *dtypes)
        form = row.floats if dtype.is_float else row.integers if dtype is not BOOL else row.booleans or row.integers
        assert row.takes(dtypes[0]) == (form is not None)
        for device in (CPU, replace(GPU, fp64=True)):
            operands = [f"x{k}" for k in range(len(dtypes))]
            if form is None:
                with pytest.raises(ValueError, match=f"'{row.name}' has no meaning on"):
                    generate(expr, width, operands, device=device)
                continue
            code = generate(expr, width, operands, device=device)
            assert code.statements[-1].startswith(f"const {compute_type(expr.dtype, width)} t0 = ")
            assert all(x in "".join(code.statements) for x in operands)
        if form is not None and (dtype is not BOOL or row.booleans is not None):
            assert evaluate(expr, [np.ones(2, d.np) for d in dtypes], (2,)).dtype == expr.dtype.np


@pytest.mark.parametrize("fn, dtype", [("exp", I32), ("sqrt", BOOL), ("bitand", F32), ("tanh", BOOL)])
def test_a_function_without_meaning_on_its_operand_is_refused_before_planning(fn: str, dtype: DType) -> None:
    dtypes = dtypes_of(fn, dtype)
    op, types = Elementwise(call(fn, *dtypes)), [TensorType(d, (3,)) for d in dtypes]
    with pytest.raises(ShapeError, match=f"'{fn}' of '{fn}.*' has no meaning on {dtype.short}: cast"):
        op.check_shape(types)


def test_functions_are_found_by_name_and_count_of_arguments() -> None:
    with pytest.raises(ValueError, match="unknown function 'tahn'; is it tan or tanh or atan"):
        call("tahn", F32)
    with pytest.raises(ValueError, match="'tanh' takes 1 arguments, got 2"):
        call("tanh", F32, F32)
    with pytest.raises(ValueError, match="'pow' takes 2 arguments, got 1"):
        parse_expr("pow($0)", [F32])
    with pytest.raises(ValueError, match="type of 'cast' is to be given"):
        call("cast", F32)


def test_bits_of_another_type() -> None:
    expr = parse_expr("bits<i32>($0)", [F32])
    assert str(expr) == "bits<i32>($0)"
    assert apply(expr, np.array([1.0, -0.0], np.float32)) == [0x3F800000, -(2**31)]
    assert generate(expr, 4, ["x"], device=GPU).statements == ("const int4 t0 = as_int4(x);",)
    with pytest.raises(ValueError, match="no meaning from f32 to i64"):
        generate(parse_expr("bits<i64>($0)", [F32]), 1, ["x"], device=GPU)


def test_one_typed_variable_for_each_instruction() -> None:
    expr = trace(lambda x, y: where(x < y, x * 2.0, y), F32, F32)
    code = generate(expr, 4, ["a", "b"], device=GPU)
    assert [s.split(" = ")[0] for s in code.statements] == ["const int4 t0", "const float4 t1", "const float4 t2"]
    assert code.result == "t2"
    assert code.body("  ").startswith("  const int4 t0")


def test_helpers_come_once() -> None:
    code = generate(trace(lambda x: x.call("erf") + (x * 2.0).call("erf"), F32), 16, ["x"], device=CPU)
    assert list(code.helpers) == ["erf_float16"]
    assert not generate(call("erf", F32), 4, ["x"], device=GPU).helpers
    assert list(generate(call("erf", F32), 4, ["x"], device=GPU, stored=F16).helpers) == ["short_erf_float4"]
    assert list(generate(call("erf", F32), 4, ["x"], device=CPU, stored=F16).helpers) == ["erf_float4"]


def test_a_number_beside_makes_max_one_comparison() -> None:
    assert generate(trace(lambda x: x.call("max", 0.0), F32), 1, ["x"], device=CPU).statements == (
        "const float t0 = 0.0f > x ? 0.0f : x;",
    )
    assert generate(call("max", F32, F32), 1, ["x", "y"], device=CPU).helpers


@pytest.mark.parametrize("fn", ["where", "div", "mod", "fmod", "pow", "shl", "shr"])
def test_scalars_of_char_are_chosen_by_select(fn: str) -> None:
    """Mesa's llvmpipe dies of, or computes wrongly, a ternary on them (faults/rusticl_choice_of_bytes.py)."""
    dtypes = [BOOL, I8, I8] if fn == "where" else [I8, I8]
    code = generate(call(fn, *dtypes), 1, ["x0", "x1", "x2"][: len(dtypes)], device=CPU)
    text = "".join(code.helpers.values()) + code.body() + code.result
    assert "select(" in text
    assert " ? " not in text


def test_coordinates() -> None:
    b = Builder([])
    expr = b.finish(coord(b, 2).ref)
    assert generate(expr, 4, [], device=CPU, coord=lambda axis: f"at{axis}").statements == ("const long4 t0 = at2;",)


def test_refusals() -> None:
    assert "double precision" in str(generation_refusal(cast_expr(F32, F64), GPU))
    assert generation_refusal(cast_expr(F32, F64), CPU) is None
    assert "element type" in str(generation_refusal(Expr((), (DType.STRING,)), CPU))


@pytest.mark.parametrize(
    "value, base, text",
    [
        (1.0, "float", "1.0f"),
        (0.1, "float", "0.1f"),
        (0.1, "double", "0.1"),
        (-0.0, "float", "(-0.0f)"),
        (1e-30, "float", "1e-30f"),
        (1e39, "float", "INFINITY"),
        (-math.inf, "double", "(-((double)INFINITY))"),
        (math.nan, "float", "NAN"),
        (-(2**31), "int", "(-2147483647 - 1)"),
        (-(2**63), "long", "(-9223372036854775807l - 1)"),
        (2**64 - 1, "ulong", "18446744073709551615ul"),
        (-1, "uchar", "((uchar)255)"),
        (-128, "char", "((char)(-128))"),
        (True, "int", "1"),
    ],
)
def test_number_literals(value: float, base: str, text: str) -> None:
    assert number(value, base) == text


def test_vector_types() -> None:
    t = Vec("float", 8)
    assert (str(t), str(t.mask), str(t.unsigned), str(Vec("double", 2).mask)) == ("float8", "int8", "uint8", "long2")
    assert str(Vec("double", 1).mask) == "int"
    assert t.literal(1.0) == "((float8)(1.0f))"
    assert Vec("int", 1).convert("x") == "(int)(x)"
    assert Vec("ushort", 4).limits == (0, 65535)


def test_loads_and_stores() -> None:
    assert load(F16, F32, 4, "p", "i") == "HLOAD_4(i, p)"
    assert load(F32, F32, 1, "p", "i") == "*(p + i)"
    assert load(BOOL, BOOL, 8, "p", "i") == "convert_int8(VLOAD_AT(uchar, 8, p + i))"
    assert load(F32, F64, 2, "p", "i") == "convert_double2(VLOAD_AT(float, 2, p + i))"
    assert store(F16, F32, 1, "p", "i", "v") == "vstore_half(v, i, p);"
    assert store(I8, I8, 16, "p", "i", "v") == "VSTORE_AT(char, 16, v, p + i);"
    assert store(BF16, F32, 2, "p", "i", "v") == "VSTORE_AT(ushort, 2, bf16_bits_float2(v), p + i);"


# -- Walking broadcast operands --------------------------------------------------------------------------------


def test_walk_merges_axes() -> None:
    same = make_broadcast_loop([(2, 3, 5), (2, 3, 5)], (2, 3, 5))
    assert (same.extents, same.strides) == ((30,), ((1,), (1,)))
    channels = make_broadcast_loop([(2, 3, 4, 5), (3, 1, 1)], (2, 3, 4, 5))
    assert (channels.extents, channels.strides) == ((2, 3, 20), ((60, 20, 1), (0, 1, 0)))
    assert (channels.rows, channels.columns) == (6, 20)
    assert make_broadcast_loop([()], ()).extents == (1,)


def test_walk_keeps_axes_whose_coordinates_are_wanted() -> None:
    walk = make_broadcast_loop([(2, 3, 4, 5)], (2, 3, 4, 5), {1})
    assert walk.extents == (2, 3, 20)
    assert walk.places == {1: 1}
    assert make_broadcast_loop([(2, 1, 4)], (2, 1, 4), {1}).places == {1: 1}


def test_a_value_that_depends_on_the_position_alone() -> None:
    """It has no operands."""
    rows = Expr((Instr("coord", (Lit(0, DType.INT64),), DType.INT64),), ())
    np.testing.assert_array_equal(evaluate(rows, [], (3, 2)), [[0, 0], [1, 1], [2, 2]])


def test_an_evaluator_keeps_nothing_of_what_it_was_given() -> None:
    positions = Instr("coord", (Lit(0, I64),), I64)
    whole = Instr("cast", (In(1),), I64)
    expr = Expr(
        (positions, whole, Instr("mul", (Tmp(0), Lit(3, I64)), I64), Instr("add", (Tmp(2), Tmp(1)), I64)), (I64, F16)
    )
    again = evaluator(expr)
    for count, first in ((4, 2.5), (2, 7.0), (4, 2.5)):
        arrays = [np.zeros(1, np.int64), np.full(1, first, np.float16)]
        wanted = np.arange(count) * 3 + int(first)
        np.testing.assert_array_equal(again(arrays, (count,)), wanted)
        np.testing.assert_array_equal(
            evaluate(expr, arrays, (2, count))[1], np.arange(2)[1] * 3 + np.full(count, int(first))
        )
