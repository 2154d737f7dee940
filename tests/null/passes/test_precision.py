"""layout/assign_precision.py: what is stored in halves, and what is kept in float32."""

from __future__ import annotations

import pytest

from opalite.ir import Graph
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.layout.assign_precision import set_precision

from .texts import GPU, Case, check


def half(graph: Graph) -> None:
    set_precision(graph, PrecisionPolicy(Precision.FP16), GPU)


def single(graph: Graph) -> None:
    set_precision(graph, PrecisionPolicy(Precision.FP32), GPU)


EXPONENTIAL = """
    graph g(%x: f32[2,4]) {
        %a = Elementwise(%x) {expr="tanh($0)"}
        %e = Elementwise(%a) {expr="exp($0)"}
        %r = Reshape(%e) {shape=[8]}
        return %a, %r
    }"""

CASES = (
    Case(
        "set_precision",
        "an exponential may exceed halves, and what moves it stays with it",
        None,
        EXPONENTIAL,
        EXPONENTIAL.replace("%a =", "%a: f32[2,4] @opencl/f16/NCHW ="),
        whole=half,
    ),
    Case(
        "set_precision",
        "a constant beyond halves",
        None,
        """
        graph g(%x: f32[4], %z: f32[4]) {
            %a = Elementwise(%x) {expr="mul($0, 2.0:f32)"}
            %y = Elementwise(%z) {expr="mul($0, 100000.0:f32)"}
            return %a, %y
        }
        """,
        """
        graph g(%x: f32[4], %z: f32[4]) {
            %a: f32[4] @opencl/f16/NCHW = Elementwise(%x) {expr="mul($0, 2.0:f32)"}
            %y = Elementwise(%z) {expr="mul($0, 100000.0:f32)"}
            return %a, %y
        }
        """,
        whole=half,
    ),
    Case(
        "set_precision",
        "what is moved to where single bits are read, and what bits make",
        None,
        """
        graph g(%x: f32[2,4]) {
            %a = Elementwise(%x) {expr="tanh($0)"}
            %b = Elementwise(%a) {expr="sin($0)"}
            %r = Reshape(%b) {shape=[8]}
            %i = Elementwise(%r) {expr="bits<i32>($0); bitand(%0, -4096:i32)"}
            %f = Elementwise(%i) {expr="bits<f32>($0)"}
            return %f
        }
        """,
        """
        graph g(%x: f32[2,4]) {
            %a: f32[2,4] @opencl/f16/NCHW = Elementwise(%x) {expr="tanh($0)"}
            %b = Elementwise(%a) {expr="sin($0)"}
            %r = Reshape(%b) {shape=[8]}
            %i = Elementwise(%r) {expr="bits<i32>($0); bitand(%0, -4096:i32)"}
            %f = Elementwise(%i) {expr="bits<f32>($0)"}
            return %f
        }
        """,
        whole=half,
    ),
    Case("set_precision", "doubles are no matter of it", None, EXPONENTIAL.replace("f32", "f64"), whole=half),
    Case("set_precision", "float32 is what a graph has anyway", None, EXPONENTIAL, whole=single),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
