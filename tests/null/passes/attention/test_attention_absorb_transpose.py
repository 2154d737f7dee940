"""passes/attention/attention_views.py: transposes of rows around the products before and after attention."""

from __future__ import annotations

import pytest

from opalite.passes.attention.attention_views import absorb_input_transpose, absorb_output_transpose

from ..texts import Case, check

CASES = (
    Case(
        "absorb_input_transpose",
        "one product's rows, of which views show queries, keys and values",
        absorb_input_transpose,
        """
        graph g(%x: f32[2,5,8], %w: f32[8,24], %b: f32[24]) {
            %n = Normalize(%x, -, -) {axis=2, epsilon=1e-05, kind="layer"}
            %t = Transpose(%n) {perm=[1, 0, 2]}
            %m = MatMul(%t, %w) {trans_a=false, trans_b=false}
            %p = Elementwise(%m, %b) {expr="add($0, $1)"}
            %r = Reshape(%p) {shape=[10, 24]}
            %y = Attention(%r, %r, %r, -) {causal=false, scale=0.5, softcap=0.0, views=[view [2, 2, 5, 4] [24, 4, 48, 1] 0, view [2, 2, 5, 4] [24, 4, 48, 1] 8, view [2, 2, 5, 4] [24, 4, 48, 1] 16]}
            return %y
        }
        """,  # noqa: E501
        """
        graph g(%x: f32[2,5,8], %w: f32[8,24], %b: f32[24]) {
            %n = Normalize(%x, -, -) {axis=2, epsilon=1e-05, kind="layer"}
            %m = MatMul(%n, %w) {trans_a=false, trans_b=false}
            %p = Elementwise(%m, %b) {expr="add($0, $1)"}
            %y = Attention(%p, %p, %p, -) {causal=false, scale=0.5, softcap=0.0, views=[view [2, 2, 5, 4] [120, 4, 24, 1] 0, view [2, 2, 5, 4] [120, 4, 24, 1] 8, view [2, 2, 5, 4] [120, 4, 24, 1] 16]}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "absorb_input_transpose",
        "a transposed tensor that two attentions read, of which one has heads in other rows",
        absorb_input_transpose,
        """
        graph g(%x: f32[2,5,3,4], %k: f32[2,3,5,4]) {
            %t = Transpose(%x) {perm=[2, 0, 1, 3]}
            %a = Attention(%t, %k, %k, -) {causal=false, scale=0.5, softcap=0.0, views=[view [2, 3, 5, 4] [20, 40, 4, 1] 0, none, none]}
            %y = Attention(%a, %t, %t, -) {causal=false, scale=0.5, softcap=0.0, views=[none, view [2, 3, 5, 4] [20, 40, 4, 1] 0, view [2, 3, 5, 4] [20, 40, 4, 1] 0]}
            return %y
        }
        """,  # noqa: E501
        """
        graph g(%x: f32[2,5,3,4], %k: f32[2,3,5,4]) {
            %a = Attention(%x, %k, %k, -) {causal=false, scale=0.5, softcap=0.0, views=[view [2, 3, 5, 4] [60, 4, 12, 1] 0, none, none]}
            %y = Attention(%a, %x, %x, -) {causal=false, scale=0.5, softcap=0.0, views=[none, view [2, 3, 5, 4] [60, 4, 12, 1] 0, view [2, 3, 5, 4] [60, 4, 12, 1] 0]}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "absorb_input_transpose",
        "the rows in their new order have another reader",
        absorb_input_transpose,
        """
        graph g(%x: f32[2,5,8], %w: f32[8,8]) {
            %t = Transpose(%x) {perm=[1, 0, 2]}
            %p = MatMul(%t, %w) {trans_a=false, trans_b=false}
            %y = Attention(%p, %p, %p, -) {causal=false, scale=0.5, softcap=0.0, views=[view [2, 2, 5, 4] [8, 4, 16, 1] 0, view [2, 2, 5, 4] [8, 4, 16, 1] 0, view [2, 2, 5, 4] [8, 4, 16, 1] 0]}
            %s = Reduce(%p) {axes=[0], keepdims=false, kind="sum"}
            return %y, %s
        }
        """,  # noqa: E501
    ),
    Case(
        "absorb_input_transpose",
        "an axis of the view runs along two that are transposed",
        absorb_input_transpose,
        """
        graph g(%x: f32[2,5,4], %k: f32[1,1,10,4]) {
            %t = Transpose(%x) {perm=[1, 0, 2]}
            %y = Attention(%t, %k, %k, -) {causal=false, scale=0.5, softcap=0.0, views=[view [1, 1, 10, 4] [0, 0, 4, 1] 0, none, none]}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "absorb_input_transpose",
        "the view begins behind the first row",
        absorb_input_transpose,
        """
        graph g(%x: f32[2,5,4], %k: f32[2,1,4,4]) {
            %t = Transpose(%x) {perm=[1, 0, 2]}
            %y = Attention(%t, %k, %k, -) {causal=false, scale=0.5, softcap=0.0, views=[view [2, 1, 4, 4] [4, 0, 8, 1] 8, none, none]}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "absorb_output_transpose",
        "through a product, an expression and a reshape",
        absorb_output_transpose,
        """
        graph g(%q: f32[2,3,5,4], %k: f32[2,3,7,4], %w: f32[12,6], %b: f32[6]) {
            %a = Attention(%q, %k, %k, -) {causal=false, out_axes=[2, 0, 1, 3], scale=0.5, softcap=0.0}
            %r = Reshape(%a) {shape=[10, 12]}
            %m = MatMul(%r, %w) {trans_a=false, trans_b=false}
            %p = Elementwise(%m, %b) {expr="add($0, $1)"}
            %l = Reshape(%p) {shape=[5, 2, 6]}
            %y = Transpose(%l) {perm=[1, 0, 2]}
            return %y
        }
        """,
        """
        graph g(%q: f32[2,3,5,4], %k: f32[2,3,7,4], %w: f32[12,6], %b: f32[6]) {
            %a = Attention(%q, %k, %k, -) {causal=false, out_axes=[0, 2, 1, 3], scale=0.5, softcap=0.0}
            %r = Reshape(%a) {shape=[2, 5, 12]}
            %m = MatMul(%r, %w) {trans_a=false, trans_b=false}
            %y = Elementwise(%m, %b) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "absorb_output_transpose",
        "the product has another reader",
        absorb_output_transpose,
        """
        graph g(%q: f32[2,3,5,4], %k: f32[2,3,7,4], %w: f32[12,6]) {
            %a = Attention(%q, %k, %k, -) {causal=false, out_axes=[2, 0, 1, 3], scale=0.5, softcap=0.0}
            %r = Reshape(%a) {shape=[5, 2, 12]}
            %m = MatMul(%r, %w) {trans_a=false, trans_b=false}
            %y = Transpose(%m) {perm=[1, 0, 2]}
            return %y, %m
        }
        """,
    ),
    Case(
        "absorb_output_transpose",
        "axes that are transposed are others than attention's",
        absorb_output_transpose,
        """
        graph g(%q: f32[2,3,5,4], %k: f32[2,3,7,4], %w: f32[12,6]) {
            %a = Attention(%q, %k, %k, -) {causal=false, out_axes=[2, 0, 1, 3], scale=0.5, softcap=0.0}
            %r = Reshape(%a) {shape=[2, 5, 12]}
            %m = MatMul(%r, %w) {trans_a=false, trans_b=false}
            %y = Transpose(%m) {perm=[1, 0, 2]}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
