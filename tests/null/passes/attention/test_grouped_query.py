"""passes/attention/attention_heads.py: attention reads what exporters repeat for each head once."""

from __future__ import annotations

import pytest

from opalite.passes.attention.attention_heads import share_kv_heads

from ..texts import Case, check

CASES = (
    Case(
        "share_kv_heads",
        "keys and values expanded for three heads each",
        share_kv_heads,
        """
        graph g(%q: f32[1,6,3,4], %a: f32[1,2,1,5,4], %b: f32[1,2,1,5,4]) {
            %ka = Elementwise(%a) {expr="$0", shape=[1, 2, 3, 5, 4]}
            %k = Reshape(%ka) {shape=[1, 6, 5, 4]}
            %vb = Elementwise(%b) {expr="$0", shape=[1, 2, 3, 5, 4]}
            %v = Reshape(%vb) {shape=[1, 6, 5, 4]}
            %y = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
        """
        graph g(%q: f32[1,6,3,4], %a: f32[1,2,1,5,4], %b: f32[1,2,1,5,4]) {
            %k = Reshape(%a) {shape=[1, 2, 5, 4]}
            %v = Reshape(%b) {shape=[1, 2, 5, 4]}
            %y = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "share_kv_heads",
        "values of their own",
        share_kv_heads,
        """
        graph g(%q: f32[1,6,3,4], %a: f32[1,2,1,5,4], %v: f32[1,6,5,4]) {
            %ka = Elementwise(%a) {expr="$0", shape=[1, 2, 3, 5, 4]}
            %k = Reshape(%ka) {shape=[1, 6, 5, 4]}
            %y = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "share_kv_heads",
        "the whole group repeated, not each head",
        share_kv_heads,
        """
        graph g(%q: f32[1,6,3,4], %a: f32[1,1,2,5,4], %b: f32[1,1,2,5,4]) {
            %ka = Elementwise(%a) {expr="$0", shape=[1, 3, 2, 5, 4]}
            %k = Reshape(%ka) {shape=[1, 6, 5, 4]}
            %vb = Elementwise(%b) {expr="$0", shape=[1, 3, 2, 5, 4]}
            %v = Reshape(%vb) {shape=[1, 6, 5, 4]}
            %y = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
