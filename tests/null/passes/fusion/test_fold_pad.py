"""passes/fusion/fold_into_conv.py: zeros around the input of a window become its own padding."""

from __future__ import annotations

import pytest

from opalite.passes.fusion.fold_into_conv import fold_pad

from ..texts import Case, check

CASES = (
    Case(
        "fold_pad",
        "zeros join the padding",
        fold_pad,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, 3.0, 4.0]
            %p = Pad(%x) {mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.0}
            %y = Conv(%p, %w, -) {dilations=[1, 1], group=1, pads=[0, 1, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, 3.0, 4.0]
            %y = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[1, 1, 0, 2], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "fold_pad",
        "ones stay",
        fold_pad,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, 3.0, 4.0]
            %p = Pad(%x) {mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=1.0}
            %y = Conv(%p, %w, -) {dilations=[1, 1], group=1, pads=[0, 1, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "fold_pad",
        "zeros that meet infinite weights stay",
        fold_pad,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, inf, 4.0]
            %p = Pad(%x) {mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.0}
            %y = Conv(%p, %w, -) {dilations=[1, 1], group=1, pads=[0, 1, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
