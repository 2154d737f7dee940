"""passes/data_movement/move_transposes.py: each operator in another order of axes, and where Transposes stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opalite.passes.data_movement.move_transposes import move_transposes

from ..texts import GPU, Case, check

MOVE = move_transposes(GPU)
IMAGES = move_transposes(replace(GPU, image_support=True, family="adreno"))

CASES = (
    Case(
        "move_transposes",
        "a block of ConvNeXt, its residual, and the mean of all pixels",
        MOVE,
        """
        graph g(%x: f32[1,8,6,4]) {
            const %k: f32[4,1,3,3] = seed 1
            const %b: f32[4] = seed 2
            const %s: f32[4,1,1] = seed 3
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %c = Conv(%f, %k, %b) {dilations=[1, 1], group=4, pads=[1, 1, 1, 1], strides=[1, 1]}
            %l = Transpose(%c) {perm=[0, 2, 3, 1]}
            %n = Normalize(%l, -, -) {axis=3, epsilon=0.001, kind="layer"}
            %t = Transpose(%n) {perm=[0, 3, 1, 2]}
            %r = Elementwise(%t, %s, %f) {expr="mul($0, $1); add(%0, $2)"}
            %y = Reduce(%r) {axes=[2, 3], keepdims=false, kind="mean"}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,8,6,4]) {
            const %k: f32[4,1,3,3] = seed 1
            const %b: f32[4] = seed 2
            const %s: f32[4] = seed 3
            %c = DepthwiseNhwc(%x, %k, %b) {dilations=[1, 1], pads=[1, 1, 1, 1], strides=[1, 1]}
            %n = Normalize(%c, -, -) {axis=3, epsilon=0.001, kind="layer"}
            %r = Elementwise(%n, %s, %x) {expr="mul($0, $1); add(%0, $2)"}
            %y = Reduce(%r) {axes=[1, 2], keepdims=false, kind="mean"}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "a response normalisation, of channels and pixels",
        MOVE,
        """
        graph g(%x: f32[2,3,5,4]) {
            const %s: f32[1,4,1,1] = seed 3
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %l = Reduce(%f) {axes=[2, 3], keepdims=true, kind="l2"}
            %m = Reduce(%l) {axes=[1], keepdims=true, kind="mean"}
            %q = Elementwise(%l, %m) {expr="add($1, 1.0:f32); div($0, %0)"}
            %r = Elementwise(%f, %q, %s) {expr="mul($0, $1); mul(%0, $2); add(%1, $0)"}
            %y = Transpose(%r) {perm=[0, 2, 3, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3,5,4]) {
            const %s: f32[4] = seed 3
            %l = Reduce(%x) {axes=[1, 2], keepdims=true, kind="l2"}
            %m = Reduce(%l) {axes=[3], keepdims=true, kind="mean"}
            %q = Elementwise(%l, %m) {expr="add($1, 1.0:f32); div($0, %0)"}
            %r = Elementwise(%x, %q, %s) {expr="mul($0, $1); mul(%0, $2); add(%1, $0)"}
            return %r
        }
        """,
    ),
    Case(
        "move_transposes",
        "patches are rows of a product",
        MOVE,
        """
        graph g(%x: f32[2,24,4]) {
            const %k: f32[8,4,2,3] = fill 0.25
            const %b: f32[8] = seed 2
            %f = Transpose(%x) {perm=[0, 2, 1]}
            %p = Reshape(%f) {shape=[2, 4, 4, 6]}
            %c = Conv(%p, %k, %b) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[2, 3]}
            %q = Reshape(%c) {shape=[2, 8, 4]}
            %a = Transpose(%f) {perm=[0, 2, 1]}
            %y = Transpose(%q) {perm=[0, 2, 1]}
            return %y, %a
        }
        """,
        """
        graph g(%x: f32[2,24,4]) {
            const %k: f32[24,8] = fill 0.25
            const %b: f32[8] = seed 2
            %p = Reshape(%x) {shape=[2, 4, 6, 4]}
            %d = Reshape(%p) {shape=[2, 2, 2, 2, 3, 4]}
            %t = Transpose(%d) {perm=[0, 1, 3, 2, 4, 5]}
            %r = Reshape(%t) {shape=[2, 2, 2, 24]}
            %m = MatMul(%r, %k) {trans_a=false, trans_b=false}
            %c = Elementwise(%m, %b) {expr="add($0, $1)"}
            %y = Reshape(%c) {shape=[2, 4, 8]}
            return %y, %x
        }
        """,
    ),
    Case(
        "move_transposes",
        "two who read channels first",
        MOVE,
        """
        graph g(%x: f32[1,8,6,4]) {
            const %k: f32[4,1,3,3] = seed 1
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %c = Conv(%f, %k, -) {dilations=[1, 1], group=4, pads=[1, 1, 1, 1], strides=[1, 1]}
            %l = Transpose(%c) {perm=[0, 2, 3, 1]}
            %y = Softmax(%c) {axis=3, log=false}
            %z = Softmax(%f) {axis=3, log=false}
            return %y, %z, %l
        }
        """,
    ),
    Case(
        "move_transposes",
        "a window that is no row of pixels",
        MOVE,
        """
        graph g(%x: f32[1,8,6,4]) {
            const %k: f32[8,4,3,3] = seed 1
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %c = Conv(%f, %k, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            %y = Transpose(%c) {perm=[0, 2, 3, 1]}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "pictures in images have blocks of channels",
        IMAGES,
        """
        graph g(%x: f32[1,8,6,4]) {
            const %k: f32[4,1,3,3] = seed 1
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %c = Conv(%f, %k, -) {dilations=[1, 1], group=4, pads=[1, 1, 1, 1], strides=[1, 1]}
            %l = Transpose(%c) {perm=[0, 2, 3, 1]}
            %n = Normalize(%l, -, -) {axis=3, epsilon=0.001, kind="layer"}
            return %n
        }
        """,
    ),
    Case(
        "move_transposes",
        "a residual block written channels last",
        MOVE,
        """
        graph g(%x: f32[1,5,6,4]) {
            const %k: f32[4,4,3,3] = seed 1
            const %m: f32[4,4,1,1] = seed 2
            const %s: f32[4] = seed 3
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %c = Conv(%f, %k, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            %l = Transpose(%c) {perm=[0, 2, 3, 1]}
            %r = Elementwise(%l, %x, %s) {expr="add($0, $1); max(%0, 0.0:f32); mul(%1, $2)"}
            %g = Transpose(%r) {perm=[0, 3, 1, 2]}
            %d = Conv(%g, %m, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            %p = Normalize(%d, -, -) {epsilon=0.001, kind="instance"}
            %y = Transpose(%p) {perm=[0, 2, 3, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,5,6,4]) {
            const %k: f32[4,4,3,3] = seed 1
            const %m: f32[4,4,1,1] = seed 2
            const %s: f32[4,1,1] = seed 3
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %c = Conv(%f, %k, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            %r = Elementwise(%c, %f, %s) {expr="add($0, $1); max(%0, 0.0:f32); mul(%1, $2)"}
            %d = Conv(%r, %m, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            %p = Normalize(%d, -, -) {epsilon=0.001, kind="instance"}
            %y = Transpose(%p) {perm=[0, 2, 3, 1]}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "channels to pixels between convolutions, written channels last",
        MOVE,
        """
        graph g(%x: f32[1,8,3,4]) {
            const %k: f32[2,2,3,3] = seed 1
            %a = Softmax(%x) {axis=1, log=false}
            %s = Normalize(%a, -, -) {epsilon=0.001, kind="instance"}
            %t = Transpose(%s) {perm=[0, 2, 3, 1]}
            %u = Reshape(%t) {shape=[1, 3, 4, 2, 2, 2]}
            %v = Transpose(%u) {perm=[0, 1, 3, 2, 4, 5]}
            %w = Reshape(%v) {shape=[1, 6, 8, 2]}
            %f = Transpose(%w) {perm=[0, 3, 1, 2]}
            %y = Conv(%f, %k, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,8,3,4]) {
            const %k: f32[2,2,3,3] = seed 1
            %a = Softmax(%x) {axis=1, log=false}
            %s = Normalize(%a, -, -) {epsilon=0.001, kind="instance"}
            %u = Reshape(%s) {shape=[1, 2, 2, 2, 3, 4]}
            %v = Transpose(%u) {perm=[0, 3, 4, 1, 5, 2]}
            %w = Reshape(%v) {shape=[1, 2, 6, 8]}
            %y = Conv(%w, %k, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "pixels are merged, and split again",
        MOVE,
        """
        graph g(%x: f32[2,4,6,5]) {
            %t = Transpose(%x) {perm=[0, 2, 3, 1]}
            %r = Reshape(%t) {shape=[2, 30, 4]}
            %e = Elementwise(%r) {expr="neg($0)"}
            %s = Reshape(%e) {shape=[2, 3, 10, 1, 4]}
            %y = Transpose(%s) {perm=[0, 4, 1, 2, 3]}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,4,6,5]) {
            %r = Reshape(%x) {shape=[2, 4, 30]}
            %e = Elementwise(%r) {expr="neg($0)"}
            %y = Reshape(%e) {shape=[2, 4, 3, 10, 1]}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "the smallest tensor is transposed",
        MOVE,
        """
        graph g(%x: f32[2,40,60,4]) {
            %t = Transpose(%x) {perm=[0, 3, 1, 2]}
            %e = Elementwise(%t) {expr="exp($0)"}
            %r = Reduce(%e) {axes=[3], keepdims=false, kind="max"}
            %y = Elementwise(%r) {expr="cast<f64>($0)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,40,60,4]) {
            %e = Elementwise(%x) {expr="exp($0)"}
            %r = Reduce(%e) {axes=[2], keepdims=false, kind="max"}
            %t = Transpose(%r) {perm=[0, 2, 1]}
            %y = Elementwise(%t) {expr="cast<f64>($0)"}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "the result of a reader is the same in both orders",
        MOVE,
        """
        graph g(%x: f32[2,4,6,5]) {
            %t = Transpose(%x) {perm=[0, 2, 3, 1]}
            %r = Reduce(%t) {axes=[1, 2], keepdims=false, kind="mean"}
            return %r
        }
        """,
        """
        graph g(%x: f32[2,4,6,5]) {
            %r = Reduce(%x) {axes=[2, 3], keepdims=false, kind="mean"}
            return %r
        }
        """,
    ),
    Case(
        "move_transposes",
        "computed operands of fewer axes",
        MOVE,
        """
        graph g(%x: f32[2,40,30,4], %m: f32[4], %n: f32[40,1]) {
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %o = Elementwise(%f, %n) {expr="mul($0, $1)"}
            %l = Transpose(%o) {perm=[0, 2, 3, 1]}
            %y = Elementwise(%l, %m) {expr="add($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,40,30,4], %m: f32[4], %n: f32[40,1]) {
            %v = Reshape(%n) {shape=[40, 1, 1]}
            %o = Elementwise(%x, %v) {expr="mul($0, $1)"}
            %y = Elementwise(%o, %m) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "only a constant has all axes",
        MOVE,
        """
        graph g(%m: f32[4,1,5]) {
            const %k: f32[1,4,6,5] = fill 2
            %o = Elementwise(%m, %k) {expr="mul($0, $1)"}
            %y = Transpose(%o) {perm=[0, 2, 3, 1]}
            %r = Reduce(%y) {axes=[1, 2], keepdims=false, kind="max"}
            return %r
        }
        """,
        """
        graph g(%m: f32[4,1,5]) {
            const %k: f32[1,4,6,5] = fill 2
            %o = Elementwise(%m, %k) {expr="mul($0, $1)"}
            %r = Reduce(%o) {axes=[2, 3], keepdims=false, kind="max"}
            return %r
        }
        """,
    ),
    Case(
        "move_transposes",
        "a flipped expression whose operands lack the first axis",
        MOVE,
        """
        graph g(%m: f32[4,1,1]) {
            const %k: f32[1,4,6,5] = fill 2
            %o = Elementwise(%m, %k) {expr="mul($0, $1)"}
            %y = Transpose(%o) {perm=[0, 2, 3, 1]}
            return %y
        }
        """,
        """
        graph g(%m: f32[4,1,1]) {
            const %k: f32[6,5,4] = fill 2
            %v = Reshape(%m) {shape=[4]}
            %o = Elementwise(%v, %k) {expr="mul($0, $1)", shape=[1, 6, 5, 4]}
            return %o
        }
        """,
    ),
    Case(
        "move_transposes",
        "of three axes a turn may be another's turn back",
        MOVE,
        """
        graph g(%x: f32[2,8,7]) {
            %f = Transpose(%x) {perm=[0, 2, 1]}
            %n = Elementwise(%f) {expr="neg($0)"}
            %y = Transpose(%n) {perm=[0, 2, 1]}
            return %f, %n, %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
