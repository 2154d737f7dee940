"""passes/fusion/fuse_epilogue.py: a chain becomes the epilogue of the kernel that writes its input."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.expr.trace_function import coord
from opalite.ir import DType, Value
from opalite.ir.precision import Precision
from opalite.passes.fusion.fuse_epilogue import fuse_epilogues
from opalite.passes.rewrite_driver import Sweep

from ....helpers.graphs import GraphMaker
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


@pytest.mark.parametrize(
    ("expr", "operand", "why"),
    [
        (lambda v: v * coord(v.builder, 1).cast(DType.FLOAT32), None, "the expression depends on coordinates"),
        (lambda v, n: v + n.cast(DType.FLOAT32), DType.INT64, "an operand is i64"),
        (lambda v, w: v * w, DType.FLOAT32, "refuses the epilogue"),
    ],
    ids=["coordinates", "integers", "rows"],
)
def test_reasons_of_chains_that_stay(expr: Any, operand: DType | None, why: str) -> None:
    g = GraphMaker()
    c = g.conv("c", g.input("x", 1, 16, 4, 4), 16, 1)
    others = [] if operand is None else [g.input("w", 4, 1, dtype=operand)]
    y = g.map("y", expr, c, *others)
    assert y.producer is not None
    assert why in str(fuse_epilogues(CPU)(y.producer, Sweep(g.done(y))))
