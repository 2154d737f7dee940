"""passes/data_movement/patch_embedding.py: patches of a picture are rows of a product."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opalite.passes.data_movement.patch_embedding import patches_to_matmul

from ..texts import GPU, Case, check

ROWS, MANY_ROWS = (patches_to_matmul(GPU, fewest) for fewest in (8, 9))
IMAGES = patches_to_matmul(replace(GPU, image_support=True, family="adreno"), 1)
CPU = patches_to_matmul(replace(GPU, kind="cpu"), 1)

_TURNED = """
        graph g(%x: f32[2,3,4,16]) {
            const %k: f32[5,3,2,8] = fill 0.25
            const %b: f32[5] = seed 2
            %c = Conv(%x, %k, %b) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[2, 8]}
            %r = Reshape(%c) {shape=[2, 5, 4]}
            %y = Transpose(%r) {perm=[0, 2, 1]}
            return %y
        }
"""

CASES = (
    Case(
        "patches_to_matmul",
        "a vector that is reshaped and turned is no picture",
        ROWS,
        """
        graph g(%x: f32[60]) {
            %r = Reshape(%x) {shape=[3, 4, 5]}
            %s = Elementwise(%r) {expr="sin($0)"}
            %f = Reshape(%s) {shape=[60]}
            %t = Reshape(%f) {shape=[3, 4, 5]}
            %y = Transpose(%t) {perm=[1, 2, 0]}
            return %y
        }
        """,
    ),
    Case("patches_to_matmul", "few patches are left to a convolution", MANY_ROWS, _TURNED),
    Case(
        "patches_to_matmul",
        "of a vision transformer: all pixels are one axis",
        ROWS,
        _TURNED,
        """
        graph g(%x: f32[2,3,4,16]) {
            const %k: f32[48,5] = fill 0.25
            const %b: f32[5] = seed 2
            %d = Reshape(%x) {shape=[2, 3, 2, 2, 2, 8]}
            %t = Transpose(%d) {perm=[0, 2, 4, 1, 3, 5]}
            %r = Reshape(%t) {shape=[2, 4, 48]}
            %m = MatMul(%r, %k) {trans_a=false, trans_b=false}
            %y = Elementwise(%m, %b) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "patches_to_matmul",
        "without a bias, turned as a picture",
        ROWS,
        """
        graph g(%x: f32[2,3,4,16]) {
            const %k: f32[5,3,2,8] = fill 0.25
            %c = Conv(%x, %k) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[2, 8]}
            %y = Transpose(%c) {perm=[0, 2, 3, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3,4,16]) {
            const %k: f32[48,5] = fill 0.25
            %d = Reshape(%x) {shape=[2, 3, 2, 2, 2, 8]}
            %t = Transpose(%d) {perm=[0, 2, 4, 1, 3, 5]}
            %r = Reshape(%t) {shape=[2, 2, 2, 48]}
            %y = MatMul(%r, %k) {trans_a=false, trans_b=false}
            return %y
        }
        """,
    ),
    Case("patches_to_matmul", "pictures in images stay convolutions", IMAGES, _TURNED),
    Case("patches_to_matmul", "processors compute few channels as fast", CPU, _TURNED),
    Case(
        "patches_to_matmul",
        "windows overlap",
        ROWS,
        _TURNED.replace("strides=[2, 8]", "strides=[2, 4]").replace("4,16", "4,12"),
    ),
    Case(
        "patches_to_matmul",
        "narrow patches are little to move",
        ROWS,
        _TURNED.replace("5,3,2,8", "5,3,2,4").replace("4,16", "4,8").replace("strides=[2, 8]", "strides=[2, 4]"),
    ),
    Case(
        "patches_to_matmul",
        "somebody else reads the channels first",
        ROWS,
        _TURNED.replace("return %y", "return %y, %c"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
