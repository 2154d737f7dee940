"""Passes that merge or move row permutations and transposes: few movements of whole rows are left."""

from __future__ import annotations

import pytest

from opalite.passes.data_movement import sink_row_permutations as sinking
from opalite.passes.data_movement.fuse_row_permutations import fuse_row_permutations, unfuse_row_permutation
from opalite.passes.data_movement.transposes import fuse_transposes

from ..texts import CPU, GPU, Case, check

CASES = (
    Case(
        "fuse_row_permutations",
        "a roll and windows of it are one",
        fuse_row_permutations(GPU),
        """
        graph g(%x: f32[1,6,9,16]) {
            %a = Slice(%x) {sizes=[1, 4, 9, 16], starts=[0, 2, 0, 0], steps=[1, 1, 1, 1]}
            %b = Slice(%x) {sizes=[1, 2, 9, 16], starts=[0, 0, 0, 0], steps=[1, 1, 1, 1]}
            %c = Concat(%a, %b) {axis=1}
            %r = Reshape(%c) {shape=[1, 2, 3, 3, 3, 16]}
            %t = Transpose(%r) {perm=[0, 1, 3, 2, 4, 5]}
            %y = Reshape(%t) {shape=[6, 9, 16]}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,6,9,16]) {
            %y_0 = PermuteRows(%x) {row=16, shape=[6, 9, 16], steps=[["concat", 1, [[["slice", [0, 2, 0, 0], [1, 1, 1, 1], [1, 4, 9, 1]]], [["slice", [0, 0, 0, 0], [1, 1, 1, 1], [1, 2, 9, 1]]]]], ["reshape", [1, 2, 3, 3, 3, 1]], ["transpose", [0, 1, 3, 2, 4, 5]], ["reshape", [6, 9, 1]]]}
            return %y_0
        }
        """,  # noqa: E501
    ),
    Case(
        "fuse_row_permutations",
        "a single transpose of whole rows can be moved among what computes rows",
        fuse_row_permutations(GPU),
        """
        graph g(%x: f32[6,9,16]) {
            %s = Elementwise(%x) {expr="tanh($0)"}
            %r = Reshape(%s) {shape=[2, 3, 9, 16]}
            %t = Transpose(%r) {perm=[1, 0, 2, 3]}
            %y = Reshape(%t) {shape=[6, 9, 16]}
            return %y
        }
        """,
        """
        graph g(%x: f32[6,9,16]) {
            %s = Elementwise(%x) {expr="tanh($0)"}
            %y_0 = PermuteRows(%s) {row=16, shape=[6, 9, 16], steps=[["reshape", [2, 3, 9, 1]], ["transpose", [1, 0, 2, 3]], ["reshape", [6, 9, 1]]]}
            return %y_0
        }
        """,  # noqa: E501
    ),
    Case(
        "unfuse_row_permutation",
        "what stays one transpose is one again",
        unfuse_row_permutation,
        """
        graph g(%x: f32[6,9,16]) {
            %y=PermuteRows(%x) {row=16, shape=[54, 16], steps=[["reshape", [2, 3, 9, 1]], ["transpose", [1, 0, 2, 3]]]}
            return %y
        }
        """,
        """
        graph g(%x: f32[6,9,16]) {
            %x_1 = Reshape(%x) {shape=[2, 3, 9, 16]}
            %x_2 = Transpose(%x_1) {perm=[1, 0, 2, 3]}
            %x_0 = Reshape(%x_2) {shape=[54, 16]}
            return %x_0
        }
        """,
    ),
    Case(
        "hoist_row_permutation",
        "rows are moved before they are normalised",
        sinking.hoist_row_permutation,
        """
        graph g(%x: f32[6,9,16]) {
            const %s: f32[16] = seed 1
            const %b: f32[16] = seed 2
            %n = Normalize(%x, %s, %b) {axis=2, epsilon=0.001, kind="layer"}
            %y = PermuteRows(%n) {row=16, shape=[54, 16], steps=[["transpose", [1, 0, 2]]]}
            return %y
        }
        """,
        """
        graph g(%x: f32[6,9,16]) {
            %x_1 = PermuteRows(%x) {row=16, shape=[54, 16], steps=[["transpose", [1, 0, 2]]]}
            const %s: f32[16] = seed 1
            const %b: f32[16] = seed 2
            %y_0 = Normalize(%x_1, %s, %b) {axis=1, epsilon=0.001, kind="layer"}
            return %y_0
        }
        """,
    ),
    Case(
        "hoist_row_permutation",
        "a product is passed on the way to another movement",
        sinking.hoist_row_permutation,
        """
        graph g(%x: f32[6,9,8]) {
            const %w: f32[16,8] = seed 1
            %m = PermuteRows(%x) {row=8, shape=[27, 16], steps=[["transpose", [1, 0, 2]]]}
            %p = MatMul(%m, %w) {trans_a=false, trans_b=false}
            %y = PermuteRows(%p) {row=8, shape=[3, 9, 8], steps=[["reshape", [3, 9, 1]], ["take", 0, [2, 0, 1]]]}
            return %y
        }
        """,
        """
        graph g(%x: f32[6,9,8]) {
            %m = PermuteRows(%x) {row=8, shape=[27, 16], steps=[["transpose", [1, 0, 2]]]}
            %m_1 = PermuteRows(%m) {row=16, shape=[3, 9, 16], steps=[["reshape", [3, 9, 1]], ["take", 0, [2, 0, 1]]]}
            const %w: f32[16,8] = seed 1
            %y_0 = MatMul(%m_1, %w) {trans_a=false, trans_b=false}
            return %y_0
        }
        """,
    ),
    Case(
        "align_row_permutations",
        "a residual that was moved once is added where the rows are",
        sinking.align_row_permutations,
        """
        graph g(%x: f32[6,8]) {
            const %w: f32[8,8] = seed 1
            const %b: f32[1,8] = seed 2
            %m = PermuteRows(%x) {row=8, shape=[2, 3, 8], steps=[["take", 0, [4, 0, 1, 2, 3, 5]]]}
            %p = MatMul(%m, %w) {trans_a=false, trans_b=false}
            %u = PermuteRows(%p) {row=8, shape=[6, 8], steps=[["reshape", [6, 1]], ["take", 0, [1, 2, 3, 4, 0, 5]]]}
            %y = Elementwise(%x, %u, %b) {expr="add($0, $1); add(%0, $2)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[6,8]) {
            %m = PermuteRows(%x) {row=8, shape=[2, 3, 8], steps=[["take", 0, [4, 0, 1, 2, 3, 5]]]}
            const %w: f32[8,8] = seed 1
            %p = MatMul(%m, %w) {trans_a=false, trans_b=false}
            const %b: f32[1,8] = seed 2
            %b_1 = Reshape(%b) {shape=[8]}
            %y_2 = Elementwise(%m, %p, %b_1) {expr="add($0, $1); add(%0, $2)"}
            %y_0 = PermuteRows(%y_2) {row=8, shape=[6, 8], steps=[["reshape", [6, 1]], ["take", 0, [1, 2, 3, 4, 0, 5]]]}
            return %y_0
        }
        """,
    ),
    Case(
        "sink_row_permutation",
        "rows stay in windows until other ones are wanted",
        sinking.sink_row_permutation,
        """
        graph g(%x: f32[2,3,8]) {
            const %w: f32[8,4] = seed 1
            const %v: f32[4,8] = seed 2
            const %b: f32[1,4] = seed 3
            const %s: f32[8] = seed 4
            %u = PermuteRows(%x) {row=8, shape=[6, 8], steps=[["reshape", [6, 1]], ["take", 0, [1, 2, 3, 4, 0, 5]]]}
            %n = Normalize(%u, %s, -) {axis=1, epsilon=0.001, kind="layer"}
            %p = MatMul(%n, %w) {trans_a=false, trans_b=false}
            %a = Elementwise(%p, %b) {expr="add($0, $1); tanh(%0)"}
            %q = MatMul(%a, %v) {trans_a=false, trans_b=false}
            %z = Elementwise(%q, %u) {expr="add($0, $1)"}
            %y = PermuteRows(%z) {row=8, shape=[3, 2, 8], steps=[["reshape", [3, 2, 1]]]}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3,8]) {
            const %s: f32[8] = seed 4
            %n_1 = Normalize(%x, %s, -) {axis=2, epsilon=0.001, kind="layer"}
            const %w: f32[8,4] = seed 1
            %p_2 = MatMul(%n_1, %w) {trans_a=false, trans_b=false}
            const %b: f32[1,4] = seed 3
            %b_3 = Reshape(%b) {shape=[4]}
            %a_4 = Elementwise(%p_2, %b_3) {expr="add($0, $1); tanh(%0)"}
            const %v: f32[4,8] = seed 2
            %q_5 = MatMul(%a_4, %v) {trans_a=false, trans_b=false}
            %z_6 = Elementwise(%q_5, %x) {expr="add($0, $1)"}
            %y_0 = PermuteRows(%z_6) {row=8, shape=[3, 2, 8], steps=[["reshape", [6, 1]], ["take", 0, [1, 2, 3, 4, 0, 5]], ["reshape", [6, 1]], ["reshape", [3, 2, 1]]]}
            return %y_0
        }
        """,  # noqa: E501
    ),
    Case(
        "fuse_transposes",
        "transposes around a reshape",
        fuse_transposes,
        """
        graph g(%x: f32[2,12,5,3]) {
            %a = Transpose(%x) {perm=[0, 2, 3, 1]}
            %b = Reshape(%a) {shape=[10, 3, 4, 3]}
            %y = Transpose(%b) {perm=[2, 3, 0, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,12,5,3]) {
            %x_1 = Reshape(%x) {shape=[2, 12, 15]}
            %y_2 = Transpose(%x_1) {perm=[1, 0, 2]}
            %y_0 = Reshape(%y_2) {shape=[4, 3, 10, 3]}
            return %y_0
        }
        """,
    ),
    Case(
        "fuse_row_permutations",
        "one launch stays what it is",
        fuse_row_permutations(GPU),
        """
        graph g(%x: f32[2,6,9,16]) {
            %y = Slice(%x) {sizes=[2, 4, 9, 16], starts=[0, 2, 0, 0], steps=[1, 1, 1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_row_permutations",
        "short rows are moved as well by other kernels",
        fuse_row_permutations(GPU),
        """
        graph g(%x: f32[1,6,9,4]) {
            %a = Slice(%x) {sizes=[1, 4, 9, 4], starts=[0, 2, 0, 0], steps=[1, 1, 1, 1]}
            %b = Slice(%x) {sizes=[1, 2, 9, 4], starts=[0, 0, 0, 0], steps=[1, 1, 1, 1]}
            %c = Concat(%a, %b) {axis=1}
            %r = Reshape(%c) {shape=[1, 2, 3, 3, 3, 4]}
            %t = Transpose(%r) {perm=[0, 1, 3, 2, 4, 5]}
            %y = Reshape(%t) {shape=[6, 9, 4]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_row_permutations",
        "rows that a CPU moves as well otherwise",
        fuse_row_permutations(CPU),
        """
        graph g(%x: f32[1,6,9,8]) {
            %a = Slice(%x) {sizes=[1, 4, 9, 8], starts=[0, 2, 0, 0], steps=[1, 1, 1, 1]}
            %b = Slice(%x) {sizes=[1, 2, 9, 8], starts=[0, 0, 0, 0], steps=[1, 1, 1, 1]}
            %c = Concat(%a, %b) {axis=1}
            %r = Reshape(%c) {shape=[1, 2, 3, 3, 3, 8]}
            %t = Transpose(%r) {perm=[0, 1, 3, 2, 4, 5]}
            %y = Reshape(%t) {shape=[6, 9, 8]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_row_permutations",
        "several tensors are joined as before",
        fuse_row_permutations(GPU),
        """
        graph g(%x: f32[2,6,9,16], %z: f32[2,2,9,16]) {
            %a = Slice(%x) {sizes=[2, 4, 9, 16], starts=[0, 2, 0, 0], steps=[1, 1, 1, 1]}
            %y = Concat(%a, %z) {axis=1}
            return %y
        }
        """,
    ),
    Case(
        "fuse_row_permutations",
        "what somebody else reads stays",
        fuse_row_permutations(GPU),
        """
        graph g(%x: f32[2,6,9,16]) {
            %a = Transpose(%x) {perm=[1, 0, 2, 3]}
            %y = Slice(%a) {sizes=[3, 2, 9, 16], starts=[0, 0, 0, 0], steps=[2, 1, 1, 1]}
            return %a, %y
        }
        """,
    ),
    Case(
        "unfuse_row_permutation",
        "steps that are no transpose",
        unfuse_row_permutation,
        """
        graph g(%x: f32[6,8]) {
            const %w: f32[8,8] = seed 1
            const %b: f32[1,8] = seed 2
            %m = PermuteRows(%x) {row=8, shape=[2, 3, 8], steps=[["take", 0, [4, 0, 1, 2, 3, 5]]]}
            %p = MatMul(%m, %w) {trans_a=false, trans_b=false}
            %u = PermuteRows(%p) {row=8, shape=[6, 8], steps=[["reshape", [6, 1]], ["take", 0, [1, 2, 3, 4, 0, 5]]]}
            %y = Elementwise(%x, %u, %b) {expr="add($0, $1); add(%0, $2)"}
            return %y
        }
        """,
    ),
    Case(
        "hoist_row_permutation",
        "rows that are normalised for others, too",
        sinking.hoist_row_permutation,
        """
        graph g(%x: f32[6,9,16]) {
            const %s: f32[16] = seed 1
            const %b: f32[16] = seed 2
            %n = Normalize(%x, %s, %b) {axis=2, epsilon=0.001, kind="layer"}
            %y = PermuteRows(%n) {row=16, shape=[54, 16], steps=[["transpose", [1, 0, 2]]]}
            return %y, %n
        }
        """,
    ),
    Case(
        "hoist_row_permutation",
        "rows that are taken twice would be normalised twice",
        sinking.hoist_row_permutation,
        """
        graph g(%x: f32[1,1,16]) {
            const %s: f32[16] = seed 1
            const %b: f32[16] = seed 2
            %n = Normalize(%x, %s, %b) {axis=2, epsilon=0.001, kind="layer"}
            %y = PermuteRows(%n) {row=16, shape=[2, 16], steps=[["reshape", [1, 1]], ["take", 0, [0, 0]]]}
            return %y
        }
        """,
    ),
    Case(
        "hoist_row_permutation",
        "rows of zeros are not what the norm of zeros is",
        sinking.hoist_row_permutation,
        """
        graph g(%x: f32[6,9,16]) {
            const %s: f32[16] = seed 1
            const %b: f32[16] = seed 2
            %n = Normalize(%x, %s, %b) {axis=2, epsilon=0.001, kind="layer"}
            %y = PermuteRows(%n) {row=16, shape=[1, 2, 16], steps=[["slice", [0, 0, 0], [1, 1, 1], [1, 1, 1]], ["pad", [0, 0, 0, 0, 1, 0]]]}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "align_row_permutations",
        "a residual that is not known in the order of the rows",
        sinking.align_row_permutations,
        """
        graph g(%x: f32[6,8]) {
            const %w: f32[8,8] = seed 1
            const %b: f32[1,8] = seed 2
            %m = Reshape(%x) {shape=[2, 3, 8]}
            %p = MatMul(%m, %w) {trans_a=false, trans_b=false}
            %u = PermuteRows(%p) {row=8, shape=[6, 8], steps=[["reshape", [6, 1]], ["take", 0, [1, 2, 3, 4, 0, 5]]]}
            %y = Elementwise(%x, %u, %b) {expr="add($0, $1); add(%0, $2)"}
            return %y
        }
        """,
    ),
    Case(
        "sink_row_permutation",
        "one who reads the rows where they are",
        sinking.sink_row_permutation,
        """
        graph g(%x: f32[2,3,8]) {
            const %w: f32[8,4] = seed 1
            const %v: f32[4,8] = seed 2
            const %b: f32[1,4] = seed 3
            const %s: f32[8] = seed 4
            %u = PermuteRows(%x) {row=8, shape=[6, 8], steps=[["reshape", [6, 1]], ["take", 0, [1, 2, 3, 4, 0, 5]]]}
            %n = Normalize(%u, %s, -) {axis=1, epsilon=0.001, kind="layer"}
            %p = MatMul(%n, %w) {trans_a=false, trans_b=false}
            %a = Elementwise(%p, %b) {expr="add($0, $1); tanh(%0)"}
            %q = MatMul(%a, %v) {trans_a=false, trans_b=false}
            %z = Elementwise(%q, %u) {expr="add($0, $1)"}
            %y = PermuteRows(%z) {row=8, shape=[3, 2, 8], steps=[["reshape", [3, 2, 1]]]}
            return %y, %p
        }
        """,
    ),
    Case(
        "fuse_transposes",
        "one transpose",
        fuse_transposes,
        """
        graph g(%x: f32[2,12,5,3]) {
            %a = Reshape(%x) {shape=[2, 3, 4, 15]}
            %y = Transpose(%a) {perm=[0, 2, 1, 3]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_transposes",
        "runs that do not divide",
        fuse_transposes,
        """
        graph g(%x: f32[4,6]) {
            %a = Transpose(%x) {perm=[1, 0]}
            %b = Reshape(%a) {shape=[8, 3]}
            %y = Transpose(%b) {perm=[1, 0]}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    check(case)
