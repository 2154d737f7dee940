"""passes/quantization/dynamic_ranges.py: ranges found in one pass, scales computed by their readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opalite.passes.quantization.dynamic_ranges import compute_scalars_in_readers, join_extremes

from ..texts import GPU, Case, check

EXTREMES, CPU = join_extremes(GPU), join_extremes(replace(GPU, kind="cpu"))
SCALARS = compute_scalars_in_readers(GPU)

_BOTH = """
        graph g(%x: f32[2,3,5]) {
            %a = Reduce(%x) {axes=[0, 1, 2], keepdims=false, kind="min"}
            %b = Reduce(%x) {axes=[0, 1, 2], keepdims=true, kind="max"}
            return %a, %b
        }
"""
_STEP = """
        graph g(%x: f32[2,3,SIZE], %a: f32[], %b: f32[1]) {
            %d = Elementwise(%b, %a) {expr="sub($0, $1)"}
            %v = Reshape(%d) {shape=[]}
            %z = Elementwise(%a, %v) {expr="div($0, $1)"}
            %y = Elementwise(%x, %v, %z) {expr="div($0, $1); add(%0, $2)"}
            OUT
        }
"""


def _step(size: int = 5, out: str = "return %y") -> str:
    return _STEP.replace("SIZE", str(size)).replace("OUT", out)


CASES = (
    Case(
        "join_extremes",
        "both ends of one tensor",
        EXTREMES,
        _BOTH,
        """
        graph g(%x: f32[2,3,5]) {
            %a, %l = Extremes(%x)
            %b = Reshape(%l) {shape=[1, 1, 1]}
            return %a, %b
        }
        """,
    ),
    Case("join_extremes", "a CPU's launches are one", CPU, _BOTH),
    Case(
        "join_extremes",
        "of rows, and of another tensor",
        EXTREMES,
        """
        graph g(%x: f32[2,3], %z: f32[2,3]) {
            %a = Reduce(%x) {axes=[1], keepdims=false, kind="min"}
            %b = Reduce(%x) {axes=[1], keepdims=false, kind="max"}
            %c = Reduce(%x) {axes=[0, 1], keepdims=false, kind="min"}
            %d = Reduce(%z) {axes=[0, 1], keepdims=false, kind="max"}
            return %a, %b, %c, %d
        }
        """,
    ),
    Case(
        "compute_scalars_in_readers",
        "through a view, and one number from another",
        SCALARS,
        _step(),
        """
        graph g(%x: f32[2,3,5], %a: f32[], %b: f32[1]) {
            %y = Elementwise(%b, %a, %x) {expr="sub($0, $1); div($1, %0); div($2, %0); add(%2, %1)", shape=[2, 3, 5]}
            return %y
        }
        """,
    ),
    Case("compute_scalars_in_readers", "an output", SCALARS, _step(out="return %y, %d, %z")),
    Case(
        "compute_scalars_in_readers",
        "read by another operator",
        SCALARS,
        """
        graph g(%x: f32[2,3], %a: f32[1,1]) {
            %d = Elementwise(%a) {expr="sqrt($0)"}
            %m = MatMul(%d, %d) {trans_a=false, trans_b=false}
            %y = Elementwise(%x, %d, %m) {expr="div($0, $1); add(%0, $2)"}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


def test_a_launch_is_cheaper_than_many_divisions() -> None:
    slow = replace(GPU, compute_units=1, clock_mhz=100, lanes=1)
    check(Case("compute_scalars_in_readers", "", compute_scalars_in_readers(slow), _step(4096)))
