"""passes/composites.py: layer normalisation and attention that exporters wrote out."""

from __future__ import annotations

import pytest

from opalite.passes.composites import recognise_attention, recognise_layer_norm

from .texts import Case, check

CASES = (
    Case(
        "recognise_layer_norm",
        "over the last axis",
        recognise_layer_norm,
        """
        graph g(%x: f32[2,8]) {
            %m = Reduce(%x) {axes=[1], keepdims=true, kind="mean"}
            %d = Elementwise(%x, %m) {expr="sub($0, $1)"}
            %q = Elementwise(%d) {expr="pow($0, 2.0:f32)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-05:f32)"}
            %s = Elementwise(%e) {expr="sqrt($0)"}
            %y = Elementwise(%d, %s) {expr="div($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,8]) {
            %y = Normalize(%x, -, -) {axis=1, epsilon=1e-05, kind="layer"}
            return %y
        }
        """,
    ),
    Case(
        "recognise_layer_norm",
        "no epsilon under the root",
        recognise_layer_norm,
        """
        graph g(%x: f32[2,8]) {
            %m = Reduce(%x) {axes=[1], keepdims=true, kind="mean"}
            %d = Elementwise(%x, %m) {expr="sub($0, $1)"}
            %q = Elementwise(%d) {expr="pow($0, 2.0:f32)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %s = Elementwise(%v) {expr="sqrt($0)"}
            %y = Elementwise(%d, %s) {expr="div($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "recognise_attention",
        "scale and mask go along",
        recognise_attention,
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
        "recognise_attention",
        "heads are broadcast",
        recognise_attention,
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
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
