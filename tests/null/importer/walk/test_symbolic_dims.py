"""Dynamic dimensions as symbols: an import for one size serves the others, with onnxruntime's results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.symbols import fixed_sizes

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime, parse

RNG = np.random.default_rng(7)
SHAPES = ((2, 3, 8, 6), (2, 3, 10, 6), (3, 5, 12, 14), (4, 2, 6, 22), (2, 7, 16, 10))


def run_at(text: str, shapes: Sequence[tuple[int, ...]] = SHAPES, opset: int = 18) -> NumpySession:
    """Run one session with x of each shape, and compare with onnxruntime."""
    model = parse(text, opset)
    session = NumpySession(model, symbols=True)
    for shape in shapes:
        feeds = {"x": RNG.standard_normal(shape).astype(np.float32)}
        assert_same(session.run(feeds), by_onnxruntime(model, feeds))
    return session


def fixes(session: NumpySession) -> list[str]:
    return [g.text for s in session.imported if s.graph.trace for g in s.graph.trace.guards if g.fixes]


def body(lines: str, outputs: str = "float[A, B] y") -> str:
    return f"g (float[N, C, H, W] x) => ({outputs}) {{ s = Shape(x) {lines} }}"


INT = "{name} = Constant <value = int64[{n}] {{{values}}}> ()"


def ints(name: str, *values: int) -> str:
    return INT.format(name=name, n=len(values), values=", ".join(map(str, values)))


def scalar(name: str, value: int) -> str:
    return f"{name} = Constant <value = int64 {{{value}}}> ()"


HW = f"{ints('i23', 2, 3)} hw = Gather(s, i23)"
H = f"{scalar('i2', 2)} h = Gather(s, i2)"
NC = f"{ints('i01', 0, 1)} nc = Gather(s, i01)"
M1 = ints("m1", -1)

ONE_SEGMENT = {
    "reshape_of_gathered": body(
        f"{ints('i0', 0)} {M1} n = Gather(s, i0) t = Concat <axis = 0> (n, m1) y = Reshape(x, t)"
    ),
    "reshape_of_sliced": body(
        f"{ints('a', 0)} {ints('b', 2)} {M1} p = Slice(s, a, b) t = Concat <axis = 0> (p, m1) y = Reshape(x, t)",
        "float[A, B, D] y",
    ),
    "reshape_by_zeros": body(f"{ints('t', 0, 0, -1)} y = Reshape(x, t)", "float[A, B, D] y"),
    "reshape_product": body(
        f"{HW} {M1} {NC} p = ReduceProd <keepdims = 1> (hw) t = Concat <axis = 0> (nc, p) y = Reshape(x, t)",
        "float[A, B, D] y",
    ),
    "reshape_that_changes_nothing_at_first": "g (float[N, M] x) => (float[A, B] y) {"
    f" {ints('t', 4, -1)} y = Reshape(x, t) }}",
    "slice_that_takes_all_at_first": "g (float[N, M] x) => (float[A, B] y) {"
    f" {ints('zero', 0)} {ints('end', 4)} y = Slice(x, zero, end) }}",
    "flatten": body("y = Flatten <axis = 2> (x)"),
    "shape_range": "g (float[N, C, H, W] x) => (int64[2] y) { y = Shape <start = 1, end = 3> (x) }",
    "shape_output": "g (float[N, C, H, W] x) => (int64[4] y, int64 z) { y = Shape(x) z = Size(x) }",
    "split_squeeze_unsqueeze": body(
        f"{scalar('zero', 0)} {ints('ax', 0)} a, b, c, d = Split <num_outputs = 4> (s) sa = Squeeze(a, ax)"
        f" ua = Unsqueeze(sa, ax) {M1} t = Concat <axis = 0> (ua, m1) y = Reshape(x, t)"
    ),
    "add_sub_mul_div": body(
        f"{H} {scalar('two', 2)} {scalar('three', 3)} {ints('ax', 0)} {M1} a = Mul(h, two) b = Add(a, three)"
        " c = Sub(b, three) d = Div(c, two) e = Unsqueeze(d, ax) t = Concat <axis = 0> (e, m1) y = Reshape(x, t)"
    ),
    "mod_min_max_neg_abs": body(
        f"{H} {scalar('two', 2)} {scalar('big', 64)} m = Mod(h, two) a = Neg(h) b = Abs(a) c = Min(b, big)"
        " d = Max(c, two) y = Add(d, m)",
        "int64 y",
    ),
    "floats_and_back": body(
        f"{HW} f = Cast <to = 1> (hw) k = Constant <value = float {{1.7}}> () g1 = Mul(f, k) g2 = Floor(g1)"
        " g3 = Ceil(g1) g4 = Div(g2, k) y = Cast <to = 7> (g2) z = Cast <to = 7> (g3) w = Cast <to = 7> (g4)",
        "int64[2] y, int64[2] z, int64[2] w",
    ),
    "int32_and_back": body(f"{HW} a = Cast <to = 6> (hw) b = Add(a, a) y = Cast <to = 7> (b)", "int64[2] y"),
    "expand": body(f"{HW} one = Constant <value = float {{1.5}}> () y = Expand(one, hw)"),
    "expand_of_ones": body("o = ConstantOfShape <value = float[1] {2.0}> (s) y = Mul(o, x)", "float[N, C, H, W] y"),
    "zeros_alone": body("y = ConstantOfShape (s)", "float[N, C, H, W] y"),
    "range": body(f"{H} {scalar('zero', 0)} {scalar('one', 1)} y = Range(zero, h, one)", "int64[A] y"),
    "range_down": body(f"{H} {scalar('zero', 0)} {scalar('by', -2)} y = Range(h, zero, by)", "int64[A] y"),
    "range_of_floats": body(
        f"{H} f = Cast <to = 1> (h) a = Constant <value = float {{0.0}}> () b = Constant <value = float {{1.0}}> ()"
        " y = Range(a, f, b)",
        "float[A] y",
    ),
    "range_added": body(
        f"{scalar('i3', 3)} w = Gather(s, i3) {scalar('zero', 0)} {scalar('one', 1)} r = Range(zero, w, one)"
        " f = Cast <to = 1> (r) y = Add(x, f)",
        "float[N, C, H, W] y",
    ),
    "causal_mask": body(
        f"{H} {scalar('zero', 0)} {scalar('one', 1)} {ints('ax', 1)} r = Range(zero, h, one) c = Unsqueeze(r, ax)"
        " y = LessOrEqual(r, c)",
        "bool[A, B] y",
    ),
    "trilu_of_ones": body(
        f"{H} {ints('ax', 0)} u = Unsqueeze(h, ax) t = Concat <axis = 0> (u, u)"
        " o = ConstantOfShape <value = float[1] {1.0}> (t) y = Trilu <upper = 0> (o)"
    ),
    "eye_like": "g (float[N, C] x) => (float[N, C] y) { e = EyeLike <k = 1> (x) y = Add(x, e) }",
    "length_in_arithmetic": body(f"{H} f = Cast <to = 1> (h) y = Div(x, f)", "float[N, C, H, W] y"),
    "tile": body(
        f"{scalar('i1', 1)} c = Gather(s, i1) {ints('ax', 0)} u = Unsqueeze(c, ax) {ints('rest', 1, 1, 1)}"
        " t = Concat <axis = 0> (u, rest) y = Tile(x, t)",
        "float[N, C, H, W] y",
    ),
    "pad_to_multiple": body(
        f"{H} {scalar('eight', 8)} {scalar('zero', 0)} m = Mod(h, eight) n = Sub(eight, m) {ints('ax', 0)}"
        f" u = Unsqueeze(n, ax) {ints('b', 0, 0, 0, 0, 0, 0)} {ints('e', 0)} p = Concat <axis = 0> (b, u, e)"
        " y = Pad(x, p)",
        "float[N, C, H, W] y",
    ),
    "slice_half": body(
        f"{H} {scalar('two', 2)} half = Div(h, two) {ints('ax', 0)} {ints('axis', 2)} u = Unsqueeze(half, ax)"
        f" {ints('zero', 0)} a = Slice(x, zero, u, axis) {ints('far', 9223372036854775807)} b = Slice(x, u, far, axis)"
        f" {ints('last', -1)} y = Slice(b, last, far, axis)",
        "float[N, C, H, W] a, float[N, C, H, W] y",
    ),
    "slice_reversed": body(
        f"{ints('a', -1)} {ints('b', -9223372036854775807)} {ints('axis', 3)} {ints('by', -1)}"
        " y = Slice(x, a, b, axis, by)",
        "float[N, C, H, W] y",
    ),
    "slice_of_table": body(
        f"{H} {ints('ax', 0)} u = Unsqueeze(h, ax) {ints('zero', 0)}"
        f" {scalar('none', 0)} {scalar('most', 64)} {scalar('one', 1)} table = Range(none, most, one)"
        " y = Slice(table, zero, u)",
        "int64[A] y",
    ),
    "split_even": body("y, z = Split <axis = 2, num_outputs = 2> (x)", "float[N, C, H, W] y, float[N, C, H, W] z"),
    "split_by_sizes": body(
        f"{H} {scalar('three', 3)} r = Sub(h, three) {ints('ax', 0)} a = Unsqueeze(three, ax) b = Unsqueeze(r, ax)"
        " t = Concat <axis = 0> (a, b) y, z = Split <axis = 2> (x, t)",
        "float[N, C, H, W] y, float[N, C, H, W] z",
    ),
    "concat_then_reshape": body(
        f"k = Concat <axis = 2> (x, x) q = Slice(k, one, far, axis) {ints('t', 0, 0, -1)} y = Reshape(q, t)".replace(
            "k = ", f"{ints('one', 1)} {ints('far', 99999999999)} {ints('axis', 2)} k = "
        ),
        "float[A, B, D] y",
    ),
    "transposed": body(
        "z = Transpose <perm = [0, 2, 3, 1]> (x) s2 = Shape(z) "
        + M1
        + ints("i1", 1)
        + " a = Gather(s2, i1) t = Concat <axis = 0> (a, m1) y = Reshape(z, t)"
    ),
    "where_on_sizes": body(
        f"{HW} {ints('m', -1, -1)} e = Equal(hw, m) {ints('o', 1, 1)} w = Where(e, o, hw)"
        " f = Constant <value = float {1.0}> () y = Expand(f, w)"
    ),
    "scattered_shape": body(
        f"{ints('at', 3)} {ints('v', -1)} {ints('at2', 2)} {ints('v2', 1)} t0 = ScatterElements <axis = 0> (s, at, v)"
        " t = ScatterElements <axis = 0> (t0, at2, v2) y = Reshape(x, t)",
        "float[A, B, D, E] y",
    ),
    "cumulative": body(f"{scalar('ax', 0)} y = CumSum(s, ax)", "int64[4] y"),
    "topk_of_size": body(
        f"{scalar('i3', 3)} w = Gather(s, i3) {scalar('two', 2)} k = Div(w, two) {ints('ax', 0)} u = Unsqueeze(k, ax)"
        " y, z = TopK <axis = 3> (x, u)",
        "float[N, C, H, W] y, int64[N, C, H, W] z",
    ),
    "one_hot_depth": body(
        f"{H} {ints('i', 0, 2, -1)} v = Constant <value = float[2] {{0.0, 1.0}}> () y = OneHot(i, h, v)"
    ),
    "gather_last": body(f"{ints('last', -1)} y = Gather <axis = 2> (x, last)", "float[N, C, H, W] y"),
    "gather_by_range": body(
        f"{H} {scalar('zero', 0)} {scalar('two', 2)} r = Range(zero, h, two) y = Gather <axis = 2> (x, r)",
        "float[N, C, H, W] y",
    ),
    "conv_pool_global": (
        "g (float[N, 3, H, W] x) => (float[A, B, D, E] y, float[A, B, 1, 1] z) {"
        " w = ConstantOfShape <value = float[1] {0.1}> (ws)"
        " c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)"
        " y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (c) z = GlobalAveragePool(c) }"
    ).replace("w = ", f"{ints('ws', 4, 3, 3, 3)} w = ", 1),
    "resize_to_shape": body(
        f"{HW} {NC} {ints('two', 2, 2)} p = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)"
        ' hw2 = Mul(hw, two) t = Concat <axis = 0> (nc, hw2) y = Resize <mode = "nearest", nearest_mode = "floor",'
        ' coordinate_transformation_mode = "asymmetric"> (p, , , t)',
        "float[N, C, H, W] y",
    ),
    "resize_to_other": body(
        f"{HW} {NC} p = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)"
        ' t = Concat <axis = 0> (nc, hw) r = Resize <mode = "linear"> (p, , , t) y = Add(r, x)',
        "float[N, C, H, W] y",
    ),
    "resize_by_scales": body(
        'k = Constant <value = float[4] {1.0, 1.0, 2.0, 1.5}> () y = Resize <mode = "linear"> (x, , k)',
        "float[N, C, H, W] y",
    ),
    "resize_by_ratio": body(
        f"{HW} f = Cast <to = 1> (hw) half = Constant <value = float {{0.5}}> () q = Mul(f, half)"
        " q2 = Floor(q) r = Div(q2, f) one = Constant <value = float[2] {1.0, 1.0}> ()"
        ' k = Concat <axis = 0> (one, r) y = Resize <mode = "linear"> (x, , k)',
        "float[N, C, H, W] y",
    ),
    "matmul_attention": (
        "g (float[N, S, 8] x) => (float[N, S, 8] y) { t = Transpose <perm = [0, 2, 1]> (x) a = MatMul(x, t)"
        " p = Softmax <axis = -1> (a) y = MatMul(p, x) }"
    ),
    "einsum": 'g (float[N, S, 8] x) => (float[N, S, S] y) { y = Einsum <equation = "bij,bkj->bik"> (x, x) }',
    "space_depth": (
        "g (float[N, 4, H, W] x) => (float[A, B, D, E] y, float[A, B, D, E] z) {"
        " y = SpaceToDepth <blocksize = 2> (x) z = DepthToSpace <blocksize = 2> (x) }"
    ),
    "reverse_sequence": body(
        f"{scalar('i1', 1)} {ints('ax', 0)} c = Gather(s, i1) u = Unsqueeze(c, ax)"
        f" {ints('two', 2)} l = Expand(two, u) y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, l)",
        "float[N, C, H, W] y",
    ),
    "dynamic_if": body(
        f"{H} {scalar('four', 4)} c = Less(four, h) y = If (c) <"
        " then_branch = t () => (float[A, B, D, E] a) { a = Neg(x) },"
        " else_branch = e () => (float[A, B, D, E] b) { b = Exp(x) } >",
        "float[N, C, H, W] y",
    ),
}

OTHER_SHAPES = {
    "eye_like": ((4, 5), (6, 6), (9, 3)),
    "reshape_that_changes_nothing_at_first": ((4, 6), (8, 6), (6, 10)),
    "slice_that_takes_all_at_first": ((4, 6), (9, 6), (5, 3)),
    "conv_pool_global": ((2, 3, 16, 18), (4, 3, 24, 22), (3, 3, 17, 31)),
    "matmul_attention": ((2, 5, 8), (3, 9, 8), (4, 30, 8)),
    "einsum": ((2, 5, 8), (3, 9, 8), (4, 30, 8)),
    "space_depth": ((2, 4, 6, 8), (3, 4, 12, 4), (5, 4, 2, 14)),
}


@pytest.mark.parametrize("name", ONE_SEGMENT)
def test_one_segment_serves_all_sizes(name: str) -> None:
    session = run_at(ONE_SEGMENT[name], OTHER_SHAPES.get(name, SHAPES))
    assert fixes(session) == []
    assert len(session.imported) <= 1, [g.text for s in session.imported for g in s.graph.trace.guards]
    assert all(s.graph.trace is not None for s in session.imported)


def test_same_padding_holds_for_sizes_of_one_remainder() -> None:
    text = (
        "g (float[N, 3, H, W] x) => (float[A, B, D, E] y) {"
        f" {ints('ws', 4, 3, 3, 3)} w = ConstantOfShape <value = float[1] {{0.1}}> (ws)"
        ' y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w) }'
    )
    session = run_at(text, ((2, 3, 16, 18), (4, 3, 24, 22), (3, 3, 8, 30)))
    assert len(session.imported) == 1
    session = run_at(text, ((2, 3, 16, 18), (2, 3, 17, 18), (4, 3, 33, 22), (3, 3, 8, 30)))
    assert len(session.imported) == 2


def test_what_is_not_covered_is_a_guard_and_never_a_wrong_answer() -> None:
    text = body(f"{H} {ints('ax', 1)} v = HannWindow (h) w = Unsqueeze(v, ax) y = Mul(x, w)", "float[N, C, H, W] y")
    session = run_at(text, ((2, 3, 8, 6), (2, 3, 10, 6), (2, 3, 8, 9)))
    assert len(session.imported) == 2, "the height is fixed, the width is not"
    assert {"s2 == 8", "s2 == 10"} <= set(fixes(session))
    guard = next(g for s in session.imported for g in s.graph.trace.guards if g.fixes)
    assert guard.node == "HannWindow node 'v'"


@pytest.mark.parametrize("inverse", [0, 1])
def test_transforms_fix_the_length_alone(inverse: int) -> None:
    text = f"g (float[N, C, H, 2] x) => (float[A, B, D, E] y) {{ y = DFT <axis = 2, inverse = {inverse}> (x) }}"
    session = run_at(text, ((2, 3, 4, 2), (5, 4, 4, 2), (2, 3, 8, 2)))
    assert len(session.imported) == 2
    assert {"s2 == 4", "s2 == 8"} <= set(fixes(session))


def test_contents_that_decide_shapes_are_symbols_too() -> None:
    model = parse("g (float[N] x, int64[2] shape) => (float[A, B] y) { y = Reshape(x, shape) }")
    session = NumpySession(model, symbols=True)
    for n in (2, 5, 9, 1):
        feeds = {"x": RNG.random(6 * n, np.float32), "shape": np.array([n, 6])}
        assert_same(session.run(feeds), by_onnxruntime(model, feeds))
    assert len(session.imported) == 2, "1 is a plain size"


def test_a_guard_tells_which_node_fixed_what() -> None:
    text = body(f"{H} {ints('ax', 1)} v = HannWindow (h) w = Unsqueeze(v, ax) y = Mul(x, w)", "float[N, C, H, W] y")
    (segment,) = run_at(text, ((2, 3, 8, 6),)).imported
    (told,) = fixed_sizes(segment.graph.trace)
    assert told.startswith("size 8 of axis 2 of 'x' (H) is fixed by HannWindow node 'v' (onnx/constant_and_random.py:")


def test_errors_tell_sizes_as_numbers() -> None:
    """Messages contain numbers, not symbols; making a message must not fix sizes."""
    model = parse("g (float[N, M] x, int64[K, 1] i, float[K, L] u) => (float[N, M] y) { y = ScatterND(x, i, u) }")
    feeds = {"x": np.zeros((4, 3), np.float32), "i": np.zeros((2, 1), np.int64), "u": np.zeros((2, 4), np.float32)}
    with pytest.raises(ShapeError) as caught:
        NumpySession(model, symbols=True).run(feeds)
    said = "updates must have shape (2, 3) for x f32[4,3] and indices i64[2,1], got f32[2,4]"
    assert str(caught.value).splitlines()[0] == said


def test_one_and_zero_are_plain_sizes() -> None:
    session = run_at(ONE_SEGMENT["reshape_of_gathered"], ((1, 3, 8, 6), (1, 5, 9, 4), (2, 3, 8, 6), (4, 3, 8, 6)))
    assert len(session.imported) == 2


def test_one_symbol_for_each_name() -> None:
    model = parse("g (float[N, M] x, float[N, M] y) => (float[N, M] z) { z = Add(x, y) }")
    session = NumpySession(model, symbols=True)
    for n, m in ((3, 4), (5, 6), (7, 7)):
        feeds = {"x": RNG.random((n, m), np.float32), "y": RNG.random((n, m), np.float32)}
        assert_same(session.run(feeds), by_onnxruntime(model, feeds))
    (segment,) = session.imported
    assert len(segment.graph.trace.symbols) == 2
    assert all(g.text.endswith(">= 2") for g in segment.graph.trace.guards)


def test_sizes_that_differ_under_one_name_are_symbols_of_their_own() -> None:
    model = parse("g (float[N] x, float[N] y) => (float[K] z) { z = Concat <axis = 0> (x, y) }")
    session = NumpySession(model, symbols=True)
    for n, m in ((3, 3), (3, 4), (5, 9), (6, 6)):
        feeds = {"x": RNG.random(n, np.float32), "y": RNG.random(m, np.float32)}
        assert_same(session.run(feeds), [np.concatenate([feeds["x"], feeds["y"]])])
    assert sorted(len(s.graph.trace.symbols) for s in session.imported) == [1, 2]


def test_a_model_without_open_dimensions_has_no_trace() -> None:
    session = NumpySession(parse("g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }"), symbols=True)
    session.run({"x": RNG.random((2, 3), np.float32)})
    assert [s.graph.trace for s in session.imported] == [None]


COUNTED = """
g (float[N, M] x) => (float[K] y, int64[K, L] z) {
    r = Relu(x)
    where = NonZero(r)
    index = Transpose(where)
    y = GatherND(x, index)
    s = Shape(y)
    one = Constant <value = int64[1] {2}> ()
    t = Concat <axis = 0> (s, one)
    z = Reshape(index, t)
}
"""


def test_another_count_of_what_data_decides_is_no_new_segment() -> None:
    model = parse(COUNTED)
    session = NumpySession(model, symbols=True)
    for n, m in ((4, 5), (4, 5), (9, 7), (30, 3)):
        feeds = {"x": RNG.standard_normal((n, m)).astype(np.float32)}
        assert_same(session.run(feeds), by_onnxruntime(model, feeds))
    assert len(session.imported) == 2, "one before the count is known, and one after"


@pytest.mark.parametrize(("size", "imports"), [("K", 1), ("3", 2)])
def test_a_body_is_open_where_its_sizes_are_or_have_changed(size: str, imports: int) -> None:
    model = parse(
        """
        g (int64 n, float[SIZE] x) => (float[L] y) {
            go = Constant <value = bool {1}> ()
            y = Loop (n, go, x) <body = b (int64 i, bool c, float[A] v) => (bool d, float[B] w) {
                one = Constant <value = float[1] {1.0}> ()
                d = Identity(c)
                r = Relu(v)
                w = Concat <axis = 0> (r, one)
            }>
        }
    """.replace("SIZE", size)
    )
    session = NumpySession(model, symbols=True)
    for trips, length in ((70, 3), (80, 5 if size == "K" else 3)):  # too many to be unrolled
        feeds = {"n": np.asarray(trips, np.int64), "x": RNG.random(length, np.float32)}
        assert_same(session.run(feeds), by_onnxruntime(model, feeds))
    assert len(session.imported) == imports, "a length that the model fixes, and any other"


def test_repeated_sizes_keep_their_arrays() -> None:
    session = NumpySession(parse(ONE_SEGMENT["range_added"]), symbols=True)
    for shape in ((2, 3, 4, 5), (2, 3, 4, 6)):
        session.run({"x": RNG.random(shape, np.float32)})
    (segment,) = session.imported
    first = segment.shape_inputs.at((2, 3, 4, 5))
    assert all(a is b for a, b in zip(first.values(), segment.shape_inputs.at((2, 3, 4, 5)).values(), strict=True))
