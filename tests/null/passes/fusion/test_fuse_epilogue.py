"""passes/fusion/fuse_epilogue.py: a chain becomes the epilogue of the kernel that writes its input."""

from __future__ import annotations

import pytest

from opalite.ir import Value
from opalite.ir.precision import Precision
from opalite.passes.fusion.fuse_epilogue import fuse_epilogues

from ..texts import CPU, Case, check

CASES = (
    Case(
        "fuse_epilogues",
        "a residual sum and its activation",
        fuse_epilogues(CPU),
        """
        graph g(%x: f32[1,16,4,4], %r: f32[1,16,4,4]) {
            const %w: f32[16,16,1,1] = seed 7
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%r, %c) {expr="add($0, $1); max(%0, 0.0:f32)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,16,4,4], %r: f32[1,16,4,4]) {
            const %w: f32[16,16,1,1] = seed 7
            %y = Conv(%x, %w, -, %r) {epilogue="add($1, $0); max(%0, 0.0:f32)", dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "fuse_epilogues",
        "every operand that is the written value",
        fuse_epilogues(CPU),
        """
        graph g(%x: f32[1,16,4,4]) {
            const %w: f32[16,16,1,1] = seed 7
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c, %c) {expr="mul($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,16,4,4]) {
            const %w: f32[16,16,1,1] = seed 7
            %y = Conv(%x, %w, -) {epilogue="mul($0, $0)", dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_epilogues",
        "the expression depends on coordinates",
        fuse_epilogues(CPU),
        """
        graph g(%x: f32[1,16,4,4]) {
            const %w: f32[16,16,1,1] = seed 7
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c) {expr="coord<i64>(1:i64); cast<f32>(%0); mul($0, %1)"}
            return %y
        }
        """,
    ),
)


def _in_halves(values: dict[str, Value]) -> None:
    made = values["y"].producer
    assert made is not None
    made.precision = Precision.FP16


OTHER = Case(
    "fuse_epilogues",
    "a sum that is kept in another precision",
    fuse_epilogues(CPU),
    CASES[0].before,
    prepare=_in_halves,
)


@pytest.mark.parametrize("case", [*CASES, OTHER], ids=str)
def test_pass(case: Case) -> None:
    check(case)
