"""passes/attention/attention_views.py: attention reads and writes where its neighbours keep things."""

from __future__ import annotations

import pytest

from opalite.passes.attention.attention_views import order_attention_output, view_attention_inputs

from ..texts import Case, check

CASES = (
    Case(
        "order_attention_output",
        "heads behind positions",
        order_attention_output,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %a = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            %y = Transpose(%a) {perm=[0, 2, 1, 3]}
            return %y
        }
        """,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %a = Attention(%q, %k, %v, -) {causal=false, out_axes=[0, 2, 1, 3], scale=0.5, softcap=0.0}
            %y = Reshape(%a) {shape=[1, 3, 2, 4]}
            return %y
        }
        """,
    ),
    Case(
        "order_attention_output",
        "through a reshape that joins batches and heads",
        order_attention_output,
        """
        graph g(%q: f32[2,3,5,4], %k: f32[2,3,7,4], %v: f32[2,3,7,4]) {
            %a = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            %r = Reshape(%a) {shape=[6, 5, 4]}
            %y = Transpose(%r) {perm=[1, 0, 2]}
            return %y
        }
        """,
        """
        graph g(%q: f32[2,3,5,4], %k: f32[2,3,7,4], %v: f32[2,3,7,4]) {
            %a = Attention(%q, %k, %v, -) {causal=false, out_axes=[2, 0, 1, 3], scale=0.5, softcap=0.0}
            %y = Reshape(%a) {shape=[5, 6, 4]}
            return %y
        }
        """,
    ),
    Case(
        "order_attention_output",
        "rows would be taken apart",
        order_attention_output,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %a = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            %y = Transpose(%a) {perm=[0, 1, 3, 2]}
            return %y
        }
        """,
    ),
    Case(
        "view_attention_inputs",
        "through a transpose, a scaling and a reshape",
        view_attention_inputs,
        """
        graph g(%x: f32[3,2,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %t = Transpose(%x) {perm=[1, 0, 2]}
            %h = Elementwise(%t) {expr="mul($0, 2.0:f32)"}
            %q = Reshape(%h) {shape=[1, 2, 3, 4]}
            %y = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
        """
        graph g(%x: f32[3,2,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %y = Attention(%x, %k, %v, -) {causal=false, scale=1.0, softcap=0.0, views=[view [1, 2, 3, 4] [0, 4, 8, 1] 0, none, none]}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "view_attention_inputs",
        "a row's elements would lie apart",
        view_attention_inputs,
        """
        graph g(%x: f32[1,2,4,3], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %q = Transpose(%x) {perm=[0, 1, 3, 2]}
            %y = Attention(%q, %k, %v, -) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
