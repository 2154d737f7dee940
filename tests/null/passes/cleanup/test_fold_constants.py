"""passes/cleanup/fold_constants.py: what depends on constants alone, or has no elements, is a constant."""

from __future__ import annotations

import pytest

from opalite.passes.cleanup.fold_constants import fold_constants, fold_empty

from ..texts import Case, check

CASES = (
    Case(
        "fold_constants",
        "a constant expression",
        fold_constants,
        """
        graph g(%x: f32[2]) {
            const %k: f32[2] = [1.0, 2.0]
            %a = Elementwise(%k) {expr="mul($0, $0); add(%0, 1.0:f32)"}
            %y = Elementwise(%x, %a) {expr="add($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2]) {
            const %a: f32[2] = [2.0, 5.0]
            %y = Elementwise(%x, %a) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "fold_constants",
        "random numbers are drawn anew",
        fold_constants,
        """
        graph g() {
            %y = Random() {dtype=f32, high=1.0, kind="uniform", low=0.0, mean=0.0, scale=1.0, seed=5, shape=[2, 3]}
            return %y
        }
        """,
    ),
    Case(
        "fold_empty",
        "what an empty input gives",
        fold_empty,
        """
        graph g(%x: f32[0,3], %z: f32[3]) {
            %a = Elementwise(%x) {expr="exp($0)"}
            %s = Reduce(%a) {axes=[0], keepdims=false, kind="sum"}
            %y = Elementwise(%s, %z) {expr="add($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[0,3], %z: f32[3]) {
            const %a: f32[0,3] = []
            %s = Reduce(%a) {axes=[0], keepdims=false, kind="sum"}
            %y = Elementwise(%s, %z) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "fold_empty",
        "everything has elements",
        fold_empty,
        """
        graph g(%x: f32[2,3]) {
            %y = Reduce(%x) {axes=[0], keepdims=false, kind="sum"}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
