"""passes/data_movement/transposes.py: the small result is transposed in place of the large input."""

from __future__ import annotations

import pytest

from opalite.passes.data_movement.transposes import sink_transpose

from ..texts import Case, check

CASES = (
    Case(
        "sink_transpose",
        "a reduction",
        sink_transpose,
        """
        graph g(%x: f32[4,5,6]) {
            %t = Transpose(%x) {perm=[2, 0, 1]}
            %y = Reduce(%t) {axes=[2], keepdims=false, kind="max"}
            return %y
        }
        """,
        """
        graph g(%x: f32[4,5,6]) {
            %r = Reduce(%x) {axes=[1], keepdims=false, kind="max"}
            %y = Transpose(%r) {perm=[1, 0]}
            return %y
        }
        """,
    ),
    Case(
        "sink_transpose",
        "a slice that leaves much",
        sink_transpose,
        """
        graph g(%x: f32[4,5,6]) {
            %t = Transpose(%x) {perm=[2, 0, 1]}
            %y = Slice(%t) {sizes=[3, 4, 4], starts=[0, 0, 0], steps=[1, 1, 1]}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
