"""passes/data_movement/flattened_products.py: weights are permuted in place of the tensor that is flattened."""

from __future__ import annotations

import pytest

from opalite.passes.data_movement.move_transposes import move_transposes

from ..texts import GPU, Case, check

MOVE = move_transposes(GPU)

CASES = (
    Case(
        "move_transposes",
        "the weights of a product of flattened pixels are permuted",
        MOVE,
        """
        graph g(%x: f32[2,3,2,2]) {
            const %w: f32[12,1] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
            %n = Normalize(%x, -, -) {epsilon=0.001, kind="instance"}
            %t = Transpose(%n) {perm=[0, 2, 3, 1]}
            %e = Elementwise(%t) {expr="neg($0)"}
            %r = Reshape(%e) {shape=[2, 12]}
            %y = MatMul(%r, %w) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3,2,2]) {
            const %w: f32[12,1] = [1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12]
            %n = Normalize(%x, -, -) {epsilon=0.001, kind="instance"}
            %e = Elementwise(%n) {expr="neg($0)"}
            %r = Reshape(%e) {shape=[2, 12]}
            %y = MatMul(%r, %w) {trans_a=false, trans_b=false}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "stored rows of weights are permuted too",
        MOVE,
        """
        graph g(%x: f32[2,3,2,2]) {
            const %w: f32[1,12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
            %t = Transpose(%x) {perm=[0, 2, 3, 1]}
            %r = Reshape(%t) {shape=[2, 12]}
            %y = MatMul(%r, %w) {trans_a=false, trans_b=true}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3,2,2]) {
            const %w: f32[1,12] = [1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12]
            %r = Reshape(%x) {shape=[2, 12]}
            %y = MatMul(%r, %w) {trans_a=false, trans_b=true}
            return %y
        }
        """,
    ),
    Case(
        "move_transposes",
        "flattened pixels with two readers",
        MOVE,
        """
        graph g(%x: f32[2,3,2,2]) {
            const %w: f32[12,2] = seed 1
            %t = Transpose(%x) {perm=[0, 2, 3, 1]}
            %r = Reshape(%t) {shape=[2, 12]}
            %y = MatMul(%r, %w) {trans_a=false, trans_b=false}
            return %y, %r
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
