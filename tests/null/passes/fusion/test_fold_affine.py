"""passes/fusion/fold_into_conv.py: scales and shifts of channels become part of the weights."""

from __future__ import annotations

import pytest

from opalite.passes.fusion.fold_into_conv import fold_affine

from ..texts import Case, check

CASES = (
    Case(
        "fold_affine",
        "scale and shift go, the rest of the expression stays",
        fold_affine,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
            const %b: f32[2] = [1.0, -1.0]
            const %s: f32[1,2,1,1] = [2.0, 0.5]
            const %t: f32[2,1,1] = [1.0, 8.0]
            %c = Conv(%x, %w, %b) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c, %s, %t) {expr="mul($0, $1); sub(%0, $2); max(%1, 0.0:f32)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [2.0, 4.0, 1.5, 2.0]
            const %b: f32[2] = [1.0, -8.5]
            %c = Conv(%x, %w, %b) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c) {expr="max($0, 0.0:f32)", shape=[1, 2, 3, 3]}
            return %y
        }
        """,
    ),
    Case(
        "fold_affine",
        "a scale along the width is none of channels",
        fold_affine,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
            const %s: f32[3] = [2.0, 0.5, 1.0]
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c, %s) {expr="mul($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "fold_affine",
        "the unscaled result is read too",
        fold_affine,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c) {expr="mul($0, 2.0:f32)"}
            return %y, %c
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
