"""passes/attention/recognize_norm_attention.py: attention that exporters wrote out."""

from __future__ import annotations

import pytest

from opalite.passes.attention.recognize_norm_attention import recognize_attention

from ..texts import Case, check

CASES = (
    Case(
        "recognize_attention",
        "scale and mask go along",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4], %mask: f32[3,3]) {
            %kt = Transpose(%k) {perm=[0, 1, 3, 2]}
            %s = MatMul(%q, %kt) {trans_a=false, trans_b=false}
            %h = Elementwise(%s) {expr="mul($0, 0.5:f32)"}
            %a = Elementwise(%h, %mask) {expr="add($0, $1)"}
            %p = Softmax(%a) {axis=3, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4], %mask: f32[3,3]) {
            %kt = Transpose(%k) {perm=[0, 1, 3, 2]}
            %k2 = Transpose(%kt) {perm=[0, 1, 3, 2]}
            %y = Attention(%q, %k2, %v, %mask) {blind_nan=true, causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "heads are broadcast",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,1,3,4], %v: f32[1,2,3,4], %mask: f32[3,3]) {
            %kt = Transpose(%k) {perm=[0, 1, 3, 2]}
            %s = MatMul(%q, %kt) {trans_a=false, trans_b=false}
            %h = Elementwise(%s) {expr="mul($0, 0.5:f32)"}
            %a = Elementwise(%h, %mask) {expr="add($0, $1)"}
            %p = Softmax(%a) {axis=3, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "zeros in place of NaN, as PyTorch's exporters write",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %p = Softmax(%s) {axis=3, log=false}
            %n = Elementwise(%p) {expr="isnan($0)"}
            %w = Elementwise(%n, %p) {expr="where($0, 0.0:f32, $1)"}
            %y = MatMul(%w, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %y = Attention(%q, %k, %v, -) {causal=false, nan_to_zero=true, scale=1.0, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "scores hidden by a number, and a bias",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,5,4], %v: f32[1,2,5,4], %bias: f32[2,3,5], %seen: bool[1,1,1,5]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %c = Elementwise(%s) {expr="mul($0, 0.5:f32)"}
            %b = Elementwise(%c, %bias) {expr="add($0, $1)"}
            %a = Elementwise(%seen, %b) {expr="where($0, $1, -3e38:f32)"}
            %p = Softmax(%a) {axis=3, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,5,4], %v: f32[1,2,5,4], %bias: f32[2,3,5], %seen: bool[1,1,1,5]) {
            %sum = Elementwise(%seen, %bias) {expr="where($0, $1, -3e38:f32)"}
            %y = Attention(%q, %k, %v, %sum) {blind_nan=true, causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "masked_fill: the number where the condition holds",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,5,4], %v: f32[1,2,5,4], %hidden: bool[3,5]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %a = Elementwise(%hidden, %s) {expr="where($0, -inf:f32, $1)"}
            %p = Softmax(%a) {axis=3, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,5,4], %v: f32[1,2,5,4], %hidden: bool[3,5]) {
            %m = Elementwise(%hidden) {expr="where($0, -inf:f32, 0.0:f32)"}
            %y = Attention(%q, %k, %v, %m) {blind_nan=true, causal=false, scale=1.0, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "hidden twice: the numbers do not add up",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,5,4], %v: f32[1,2,5,4], %hidden: bool[3,5], %seen: bool[5]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %a = Elementwise(%hidden, %s) {expr="where($0, -3e38:f32, $1)"}
            %b = Elementwise(%seen, %a) {expr="where($0, $1, -3e38:f32)"}
            %p = Softmax(%b) {axis=3, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,5,4], %v: f32[1,2,5,4], %hidden: bool[3,5], %seen: bool[5]) {
            %m = Elementwise(%hidden) {expr="where($0, -3e38:f32, 0.0:f32)"}
            %n = Elementwise(%seen, %m) {expr="where($0, $1, -3e38:f32)"}
            %y = Attention(%q, %k, %v, %n) {blind_nan=true, causal=false, scale=1.0, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "a number that hides nothing stays",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,5,4], %v: f32[1,2,5,4], %hidden: bool[3,5]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %a = Elementwise(%hidden, %s) {expr="where($0, -10000.0:f32, $1)"}
            %p = Softmax(%a) {axis=3, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "ones in place of NaN stay",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %p = Softmax(%s) {axis=3, log=false}
            %n = Elementwise(%p) {expr="isnan($0)"}
            %w = Elementwise(%n, %p) {expr="where($0, 1.0:f32, $1)"}
            %y = MatMul(%w, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "heads first, and no batch",
        recognize_attention,
        """
        graph g(%q: f32[6,3,4], %k: f32[6,5,4], %v: f32[6,5,2], %mask: f32[6,1,5]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %a = Elementwise(%mask, %s) {expr="add($0, $1)"}
            %p = Softmax(%a) {axis=2, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[6,3,4], %k: f32[6,5,4], %v: f32[6,5,2], %mask: f32[6,1,5]) {
            %q4 = Reshape(%q) {shape=[1, 6, 3, 4]}
            %k4 = Reshape(%k) {shape=[1, 6, 5, 4]}
            %v4 = Reshape(%v) {shape=[1, 6, 5, 2]}
            %y4 = Attention(%q4, %k4, %v4, %mask) {blind_nan=true, causal=false, scale=1.0, softcap=0.0}
            %y = Reshape(%y4) {shape=[6, 3, 2]}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "two axes of batches, and a mask of the second",
        recognize_attention,
        """
        graph g(%q: f32[2,3,2,4,4], %k: f32[2,3,2,4,4], %v: f32[2,3,2,4,4], %mask: f32[3,1,4,4]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %a = Elementwise(%s, %mask) {expr="add($0, $1)"}
            %p = Softmax(%a) {axis=4, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[2,3,2,4,4], %k: f32[2,3,2,4,4], %v: f32[2,3,2,4,4], %mask: f32[3,1,4,4]) {
            %wide = Elementwise(%mask) {expr="$0", shape=[2, 3, 1, 4, 4]}
            %m = Reshape(%wide) {shape=[6, 1, 4, 4]}
            %q4 = Reshape(%q) {shape=[6, 2, 4, 4]}
            %k4 = Reshape(%k) {shape=[6, 2, 4, 4]}
            %v4 = Reshape(%v) {shape=[6, 2, 4, 4]}
            %y4 = Attention(%q4, %k4, %v4, %m) {blind_nan=true, causal=false, scale=1.0, softcap=0.0}
            %y = Reshape(%y4) {shape=[2, 3, 2, 4, 4]}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "windows of a picture: a bias of heads, and a mask of windows added in a view",
        recognize_attention,
        """
        graph g(%q: f32[6,2,4,4], %k: f32[6,2,4,4], %v: f32[6,2,4,4], %bias: f32[1,2,4,4], %mask: f32[1,3,1,4,4]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %b = Elementwise(%s, %bias) {expr="add($0, $1)"}
            %apart = Reshape(%b) {shape=[2, 3, 2, 4, 4]}
            %a = Elementwise(%apart, %mask) {expr="add($0, $1)"}
            %joined = Reshape(%a) {shape=[6, 2, 4, 4]}
            %p = Softmax(%joined) {axis=3, log=false}
            %y = MatMul(%p, %v) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%q: f32[6,2,4,4], %k: f32[6,2,4,4], %v: f32[6,2,4,4], %bias: f32[1,2,4,4], %mask: f32[1,3,1,4,4]) {
            %wide = Elementwise(%mask) {expr="$0", shape=[2, 3, 1, 4, 4]}
            %m = Reshape(%wide) {shape=[6, 1, 4, 4]}
            %sum = Elementwise(%m, %bias) {expr="add($0, $1)"}
            %y = Attention(%q, %k, %v, %sum) {blind_nan=true, causal=false, scale=1.0, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "recognize_attention",
        "scores that somebody else reads stay",
        recognize_attention,
        """
        graph g(%q: f32[1,2,3,4], %k: f32[1,2,3,4], %v: f32[1,2,3,4]) {
            %s = MatMul(%q, %k) {trans_a=false, trans_b=true}
            %p = Softmax(%s) {axis=3, log=false}
            %n = Elementwise(%p) {expr="isnan($0)"}
            %w = Elementwise(%n, %p) {expr="where($0, 0.0:f32, $1)"}
            %y = MatMul(%w, %v) {trans_a=false, trans_b=false}
            return %y, %p
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
