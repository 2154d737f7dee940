"""Epilogues in a kernel that only copies: every operand class, in packed and in row coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.expression import Expr
from opalite.expr.trace_function import Sym, trace
from opalite.ir import FLAT, IMAGE, DType, Layout, Node, Place, Target, TensorType, Value, packed
from opalite.kernels.codegen.epilogue import (
    Epilogue,
    epilogue_refusal,
    operand_fits,
    operand_layout,
    operand_layouts,
    packed_epilogue,
    rows_epilogue,
)
from opalite.kernels.kernel_sources import option_text, program_parts
from opalite.kernels.launch import STORAGE, Weight
from opalite.kernels.weight_packing import pack_array
from opalite.ops.elementwise import Elementwise
from opalite.ops.matmul import MatMul

from ....helpers.pairs import pairwise

F32, F16, F64 = DType.FLOAT32, DType.FLOAT16, DType.FLOAT64

PACKED = """
kernel void copy_packed(global const REAL *x, global REAL *y, int blocks, int spatial EPILOGUE_PARAMS) {
    const int s = get_global_id(0), c = get_global_id(1), n = get_global_id(2);
    const size_t i = (((size_t)n * blocks + c) * spatial + s) * PACK;
    STOREV(y, i, EPILOGUE(LOADV(x, i), n, c, s, blocks, spatial));
}
"""
PLANAR = """
kernel void copy_planar(global const REAL *x, global REAL *y, int channels, int spatial EPILOGUE_PARAMS) {
    const int c = get_global_id(1), n = get_global_id(2);
    const size_t start = ((size_t)n * channels + c) * spatial;
    int s = 0;
    for (; s + PACK <= spatial; s += PACK)
        STOREV(y, start + s, EPILOGUE(LOADV(x, start + s), n, c, s, channels, spatial));
    for (; s < spatial; ++s) STORE(y, start + s, EPILOGUE1(LOAD(x, start + s), n, c, s, channels, spatial));
}
"""
ROWS = """
kernel void copy_rows(global const REAL *x, global REAL *y, int rows, int columns EPILOGUE_PARAMS) {
    const int r = get_global_id(0);
    const size_t start = (size_t)r * columns;
    int c = 0;
    for (; c + PACK <= columns; c += PACK)
        STOREV(y, start + c, EPILOGUE(LOADV(x, start + c), r, c, rows, columns));
    for (; c < columns; ++c) STORE(y, start + c, EPILOGUE1(LOAD(x, start + c), r, c, rows, columns));
}
"""


def combine(*xs: Sym) -> Sym:
    """An expression in which no two operands may change places."""
    value = xs[0].call("tanh")
    for k, x in enumerate(xs[1:]):
        value = value * (k + 1.5) - x
    return value


def make(
    expr: Expr, x: Any, operands: Sequence[Any], kind: str, layout: Layout, const: Sequence[int], storage: DType | None
) -> Node:
    """A MatMul node standing for any writer, its result `x` in `layout` and `operands` where an epilogue wants them."""

    def value(name: str, a: Any, where: Layout, data: Any = None) -> Value:
        dtype = DType.of(a)
        return Value(
            name, TensorType(dtype, a.shape, Place(Target.OPENCL, where, storage if dtype is F32 else None)), data
        )

    extra = []
    for k, a in enumerate(operands):
        data = a if k in const else None
        where = FLAT if data is not None else operand_layout(a.shape, x.shape, kind, layout)
        extra.append(value(f"e{k}", a, where, data))
    op = MatMul(trans_a=False, trans_b=False)
    return Node(op, [None, None, *extra], [value("y", x, layout)], expr, "test")


def run(
    rt: Runtime,
    node: Node,
    made: Epilogue,
    body: str,
    entry: str,
    x: Any,
    operands: Any,
    grid: Any,
    sizes: Any,
    pack: int,
) -> Any:
    """`x` copied through the epilogue."""
    t = node.y.type
    arrays = {v: a for v, a in zip(node.inputs[2:], operands, strict=True) if v is not None}

    def upload(a: Any) -> Any:
        buffer = rt.allocate(a.nbytes)
        rt.write(buffer, np.ascontiguousarray(a))
        return buffer

    args: list[Any] = [
        upload(pack_array(x, t.layout).astype(t.storage.np)),
        rt.allocate(t.nbytes),
        *map(np.int32, sizes),
    ]
    for a in made.args.values():
        if isinstance(a, Weight):
            args.append(upload(a.fn(a.value.data)))
        elif isinstance(a, Value):
            args.append(upload(pack_array(arrays[a], a.type.layout).astype(a.type.storage.np)))
        else:
            args.append(np.int32(a) if isinstance(a, int) else a)
    options = option_text({"PACK": pack, "STORAGE": STORAGE[t.storage]})
    common = program_parts("include/common.cl", made.prelude)[:-1]
    program = rt.build("".join((*common, body)), options, entry)
    rt.prepare(program, entry, args, grid).enqueue(rt.queue)
    rt.finish()
    out = np.empty(t.layout.storage_shape(t.shape), t.storage.np)
    rt.read(args[1], out)
    return out


def data(shapes: Sequence[tuple[int, ...]], dtype: Any = np.float32) -> list[Any]:
    return [np.random.default_rng(k).standard_normal(s).astype(dtype) for k, s in enumerate(shapes)]


def close(got: Any, want: Any, tolerance: float) -> None:
    atol = tolerance * np.max(np.abs(want))
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=atol)


def wanted(expr: Expr, x: Any, operands: Sequence[Any]) -> Any:
    return Elementwise(expr).reference([x, *operands])[0]


PACKED_CASES: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [
    ((2, 19, 5, 7), []),
    ((2, 19, 5, 7), [(2, 19, 5, 7), (1, 19, 5, 7)]),
    ((2, 19, 5, 7), [(1, 19, 1, 1), (2, 19, 1, 1), (1,)]),
    ((2, 19, 5, 7), [(2, 1, 5, 7), (1, 1, 5, 7), (5, 7)]),
    ((2, 19, 5, 7), [(2, 1, 1, 1), ()]),
    ((1, 1, 3, 1), [(1, 1, 3, 1), (3, 1)]),
    ((2, 1, 3, 16), [(3, 16), (1, 3, 16), (2, 1, 3, 16)]),
    ((2, 1, 1, 16), [(16,), (1, 16)]),
    ((3, 33, 11), [(3, 33, 11), (1, 33, 1), (11,)]),
]


@pytest.mark.parametrize("case, pack, constant, storage", pairwise(PACKED_CASES, [4, 16], [False, True], [None, F16]))
def test_packed(
    rt: Runtime,
    case: tuple[tuple[int, ...], list[tuple[int, ...]]],
    pack: int,
    constant: bool,
    storage: DType | None,
) -> None:
    shape, shapes = case
    x, *operands = data([shape, *shapes])
    expr = trace(combine, *[F32] * (1 + len(operands)))
    node = make(expr, x, operands, "packed", packed(pack), range(len(operands)) if constant else (), storage)
    assert epilogue_refusal(node, "packed") is None
    spatial, blocks = math.prod(shape[2:]), -(-shape[1] // pack)
    made = packed_epilogue(node, rt.info)
    out = run(rt, node, made, PACKED, "copy_packed", x, operands, (spatial, blocks, shape[0]), (blocks, spatial), pack)
    full = np.moveaxis(out, -1, 2).reshape(shape[0], blocks * pack, *shape[2:])[:, : shape[1]]
    close(full, wanted(expr, x, operands), 2e-2 if storage else 1e-5)


@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("shape, shapes", PACKED_CASES)
def test_packed_coordinates_of_a_flat_output(
    rt: Runtime, shape: tuple[int, ...], shapes: list[tuple[int, ...]], width: int
) -> None:
    x, *operands = data([shape, *shapes])
    expr = trace(combine, *[F32] * (1 + len(operands)))
    node = make(expr, x, operands, "packed", FLAT, (), None)
    spatial = math.prod(shape[2:])
    made = packed_epilogue(node, rt.info)
    grid, sizes = (1, shape[1], shape[0]), (shape[1], spatial)
    close(run(rt, node, made, PLANAR, "copy_planar", x, operands, grid, sizes, width), wanted(expr, x, operands), 1e-5)


ROW_CASES: list[tuple[tuple[int, ...], list[tuple[int, ...]], int | None]] = [
    ((37,), [(37,), (1,)], None),
    ((5, 37), [(5, 37), (37,), (5, 1), (1, 1)], None),
    ((2, 3, 5, 17), [(17,), (1, 1, 5, 17), (1, 3, 5, 1), (2, 1, 1, 1), (1, 3, 1, 17)], None),
    ((2, 3, 5, 17), [(2, 3, 1, 1), (2, 1, 1, 17), (3, 5, 17)], None),
    ((2, 3, 1, 17), [(3, 1, 1), (2, 3, 1, 17), (2, 1, 1, 1)], None),
    ((2, 3, 5, 7), [(5, 7), (2, 1, 1, 1), (2, 3, 5, 7), (1, 3, 1, 1)], 35),
    ((4, 1), [(4, 1), (1,)], None),
]


@pytest.mark.parametrize("case, constant, width", pairwise(ROW_CASES, [False, True], [1, 4, 16]))
def test_rows(
    rt: Runtime,
    case: tuple[tuple[int, ...], list[tuple[int, ...]], int | None],
    constant: bool,
    width: int,
) -> None:
    shape, shapes, columns = case
    x, *operands = data([shape, *shapes])
    expr = trace(combine, *[F32] * (1 + len(operands)))
    node = make(expr, x, operands, "rows", FLAT, range(len(operands)) if constant else (), None)
    assert epilogue_refusal(node, "rows", columns) is None
    across = columns or shape[-1]
    down = x.size // across
    made = rows_epilogue(node, rt.info, columns)
    out = run(rt, node, made, ROWS, "copy_rows", x, operands, (down,), (down, across), width)
    close(out, wanted(expr, x, operands), 1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_float_types(rt: Runtime, dtype: Any) -> None:
    if dtype is np.float64 and not rt.info.fp64:
        pytest.skip("no double precision")
    x, *operands = data([(5, 37), (37,), (1,)], dtype)
    expr = trace(combine, *[DType.of(x)] * 3)
    node = make(expr, x, operands, "rows", FLAT, [1], None)
    out = run(rt, node, rows_epilogue(node, rt.info), ROWS, "copy_rows", x, operands, (5,), (5, 37), 4)
    close(out, wanted(expr, x, operands), 2e-2 if dtype is np.float16 else 1e-12)


def test_no_epilogue_is_empty(rt: Runtime) -> None:
    (x,) = data([(5, 37)])
    node = make(Expr((), (F32,)), x, [], "rows", FLAT, (), None)
    assert rows_epilogue(node, rt.info) == Epilogue()
    assert operand_layouts(node, "rows", FLAT) == ()
    np.testing.assert_array_equal(run(rt, node, Epilogue(), ROWS, "copy_rows", x, [], (5,), (5, 37), 4), x)


@pytest.mark.parametrize(
    "shape, out, kind, fits",
    [
        ((2, 8, 4, 4), (2, 8, 4, 4), "packed", True),
        ((8, 1, 1), (2, 8, 4, 4), "packed", True),
        ((1, 1, 4, 1), (2, 8, 4, 4), "packed", False),
        ((3, 8, 4, 4), (2, 8, 4, 4), "packed", False),
        ((1, 2, 8, 4, 4), (2, 8, 4, 4), "packed", False),
        ((2, 1, 4, 8), (2, 3, 4, 8), "rows", False),
        ((3, 1, 8), (2, 3, 4, 8), "rows", True),
        ((8,), (2, 3, 4, 8), "rows", True),
        ((4, 1), (2, 3, 4, 8), "rows", True),
        ((), (), "rows", True),
    ],
)
def test_what_fits(shape: tuple[int, ...], out: tuple[int, ...], kind: str, fits: bool) -> None:
    assert operand_fits(shape, out, kind) is fits


def test_layouts_of_operands() -> None:
    out = (2, 8, 4, 4)
    assert operand_layout(out, out, "packed", packed(16)) == packed(16)
    assert operand_layout((2, 8, 1, 1), out, "packed", packed(16)) == packed(16)
    assert operand_layout((2, 1, 4, 4), out, "packed", packed(16)) == FLAT
    assert operand_layout((), out, "packed", packed(16)) == FLAT
    assert operand_layout(out, out, "packed", FLAT) == FLAT
    assert operand_layout(out, out, "packed", IMAGE) == packed(4)
    assert operand_layout((4,), out, "rows", FLAT) == FLAT


Refused = tuple[str, Callable[[], Node]]


def refused() -> list[Refused]:
    x, full, row = data([(2, 8, 4, 4), (2, 8, 4, 4), (1, 1, 4, 1)])
    two = trace(lambda a, b: a + b, F32, F32)
    cast = trace(lambda a: a.cast(DType.INT32), F32)
    wide = trace(lambda a: a.cast(F64).call("exp").cast(F32), F32)
    return [
        ("only the same float type", lambda: make(cast, x, [], "packed", packed(4), (), None)),
        ("double precision", lambda: make(wide, x, [], "packed", packed(4), (), None)),
        ("does not broadcast", lambda: make(two, x, [row], "packed", packed(4), (), None)),
        ("no packed layout", lambda: make(two, x, [full[0, :, :1, :1]], "packed", packed(4), (), None)),
    ]


@pytest.mark.parametrize("reason, node", refused(), ids=lambda v: v if isinstance(v, str) else "")
def test_refusals(reason: str, node: Callable[[], Node]) -> None:
    assert reason in str(epilogue_refusal(node(), "packed"))
