"""passes/attention/recognize_norm_attention.py: layer and RMS normalisation that exporters wrote out."""

from __future__ import annotations

import pytest

from opalite.passes.attention.recognize_norm_attention import recognize_layer_norm, recognize_rms_norm

from ..texts import Case, check

CASES = (
    Case(
        "recognize_layer_norm",
        "over the last axis",
        recognize_layer_norm,
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
        "recognize_layer_norm",
        "the difference times the root's inverse",
        recognize_layer_norm,
        """
        graph g(%x: f32[2,8]) {
            %m = Reduce(%x) {axes=[1], keepdims=true, kind="mean"}
            %d = Elementwise(%x, %m) {expr="sub($0, $1)"}
            %q = Elementwise(%d, %d) {expr="mul($0, $1)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-05:f32)"}
            %s = Elementwise(%e) {expr="rsqrt($0)"}
            %y = Elementwise(%s, %d) {expr="mul($0, $1)"}
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
        "recognize_layer_norm",
        "the variance of other axes",
        recognize_layer_norm,
        """
        graph g(%x: f32[2,4,8]) {
            %m = Reduce(%x) {axes=[1,2], keepdims=true, kind="mean"}
            %d = Elementwise(%x, %m) {expr="sub($0, $1)"}
            %q = Elementwise(%d, %d) {expr="mul($0, $1)"}
            %v = Reduce(%q) {axes=[2], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-05:f32)"}
            %s = Elementwise(%e) {expr="rsqrt($0)"}
            %y = Elementwise(%d, %s) {expr="mul($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "recognize_layer_norm",
        "no epsilon under the root",
        recognize_layer_norm,
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
        "recognize_rms_norm",
        "divided by the root",
        recognize_rms_norm,
        """
        graph g(%x: f32[2,8]) {
            %q = Elementwise(%x) {expr="pow($0, 2.0:f32)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-06:f32)"}
            %s = Elementwise(%e) {expr="sqrt($0)"}
            %y = Elementwise(%x, %s) {expr="div($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,8]) {
            %y = Normalize(%x, -, -) {axis=1, epsilon=1e-06, kind="rms"}
            return %y
        }
        """,
    ),
    Case(
        "recognize_rms_norm",
        "times the root's reciprocal",
        recognize_rms_norm,
        """
        graph g(%x: f32[2,8]) {
            %q = Elementwise(%x, %x) {expr="mul($0, $1)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-06:f32)"}
            %s = Elementwise(%e) {expr="sqrt($0)"}
            %r = Elementwise(%s) {expr="recip($0)"}
            %y = Elementwise(%r, %x) {expr="mul($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,8]) {
            %y = Normalize(%x, -, -) {axis=1, epsilon=1e-06, kind="rms"}
            return %y
        }
        """,
    ),
    Case(
        "recognize_rms_norm",
        "times one by the root",
        recognize_rms_norm,
        """
        graph g(%x: f32[2,8]) {
            %q = Elementwise(%x) {expr="pow($0, 2.0:f32)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-06:f32)"}
            %s = Elementwise(%e) {expr="sqrt($0)"}
            %r = Elementwise(%s) {expr="div(1.0:f32, $0)"}
            %y = Elementwise(%x, %r) {expr="mul($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,8]) {
            %y = Normalize(%x, -, -) {axis=1, epsilon=1e-06, kind="rms"}
            return %y
        }
        """,
    ),
    Case(
        "recognize_rms_norm",
        "times the reciprocal of the root in one",
        recognize_rms_norm,
        """
        graph g(%x: f32[2,8]) {
            %q = Elementwise(%x) {expr="pow($0, 2.0:f32)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-06:f32)"}
            %r = Elementwise(%e) {expr="rsqrt($0)"}
            %y = Elementwise(%x, %r) {expr="mul($0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,8]) {
            %y = Normalize(%x, -, -) {axis=1, epsilon=1e-06, kind="rms"}
            return %y
        }
        """,
    ),
    Case(
        "recognize_rms_norm",
        "the root divided by x is none",
        recognize_rms_norm,
        """
        graph g(%x: f32[2,8]) {
            %q = Elementwise(%x) {expr="pow($0, 2.0:f32)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-06:f32)"}
            %s = Elementwise(%e) {expr="sqrt($0)"}
            %y = Elementwise(%s, %x) {expr="div($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "recognize_rms_norm",
        "times the root is none",
        recognize_rms_norm,
        """
        graph g(%x: f32[2,8]) {
            %q = Elementwise(%x) {expr="pow($0, 2.0:f32)"}
            %v = Reduce(%q) {axes=[1], keepdims=true, kind="mean"}
            %e = Elementwise(%v) {expr="add($0, 1e-06:f32)"}
            %s = Elementwise(%e) {expr="sqrt($0)"}
            %y = Elementwise(%x, %s) {expr="mul($0, $1)"}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
