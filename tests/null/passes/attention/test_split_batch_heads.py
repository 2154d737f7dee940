"""passes/attention/attention_heads.py: one axis of the heads of all batches becomes two."""

from __future__ import annotations

import pytest

from opalite.passes.attention.attention_heads import split_batch_heads

from ..texts import Case, check

CASES = (
    Case(
        "split_batch_heads",
        "behind a transpose, a scaling and beside a mask for each head",
        split_batch_heads,
        """
        graph g(%x: f32[5,2,12], %k: f32[2,3,7,4], %v: f32[2,7,3,4], %mask: f32[6,5,7]) {
            %qr = Reshape(%x) {shape=[5, 6, 4]}
            %qt = Transpose(%qr) {perm=[1, 0, 2]}
            %qs = Elementwise(%qt) {expr="mul($0, 0.5:f32)"}
            %q4 = Reshape(%qs) {shape=[1, 6, 5, 4]}
            %k4 = Reshape(%k) {shape=[1, 6, 7, 4]}
            %vt = Transpose(%v) {perm=[0, 2, 1, 3]}
            %v4 = Reshape(%vt) {shape=[1, 6, 7, 4]}
            %y = Attention(%q4, %k4, %v4, %mask) {causal=false, scale=1.0, softcap=0.0}
            return %y
        }
        """,
        """
        graph g(%x: f32[5,2,12], %k: f32[2,3,7,4], %v: f32[2,7,3,4], %mask: f32[6,5,7]) {
            %qr = Reshape(%x) {shape=[5, 6, 4]}
            %qt = Transpose(%qr) {perm=[1, 0, 2]}
            %qs = Elementwise(%qt) {expr="mul($0, 0.5:f32)"}
            %q4 = Reshape(%qs) {shape=[1, 6, 5, 4]}
            %k4 = Reshape(%k) {shape=[1, 6, 7, 4]}
            %vt = Transpose(%v) {perm=[0, 2, 1, 3]}
            %v4 = Reshape(%vt) {shape=[1, 6, 7, 4]}
            %q = Reshape(%q4) {shape=[2, 3, 5, 4]}
            %kp = Reshape(%k4) {shape=[2, 3, 7, 4]}
            %vp = Reshape(%v4) {shape=[2, 3, 7, 4]}
            %m = Reshape(%mask) {shape=[2, 3, 5, 7]}
            %a = Attention(%q, %kp, %vp, %m) {causal=false, scale=1.0, softcap=0.0}
            %y = Reshape(%a) {shape=[1, 6, 5, 4]}
            return %y
        }
        """,
    ),
    Case(
        "split_batch_heads",
        "axes that are parted otherwise in keys",
        split_batch_heads,
        """
        graph g(%q: f32[2,3,5,4], %k: f32[3,2,7,4]) {
            %q4 = Reshape(%q) {shape=[1, 6, 5, 4]}
            %k4 = Reshape(%k) {shape=[1, 6, 7, 4]}
            %y = Attention(%q4, %k4, %k4, -) {causal=false, scale=1.0, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "split_batch_heads",
        "heads of one batch",
        split_batch_heads,
        """
        graph g(%x: f32[5,1,24]) {
            %r = Reshape(%x) {shape=[5, 6, 4]}
            %t = Transpose(%r) {perm=[1, 0, 2]}
            %q = Reshape(%t) {shape=[1, 6, 5, 4]}
            %y = Attention(%q, %q, %q, -) {causal=false, scale=1.0, softcap=0.0}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
