"""passes/attention/int8_kv_attention.py: attention of few queries reads int8 caches directly."""

from __future__ import annotations

import pytest

from opalite.passes.attention.int8_kv_attention import read_int8_cache

from ..texts import CPU, GPU, Case, check

WIDENED = """
    graph g(%q: f32[1,4,SS,8], %m: i8[1,2,9,12]) {
        %k = DequantizeRows(%m) {axis=2, size=6}
        %a = Reshape(%k) {shape=[1, 2, 1, 6, 8]}
        %b = Reshape(%a) {shape=[1, 2, 6, 8]}
        %y = Attention(%q, %b, %k, -) {causal=false, scale=0.5, softcap=0.0}
        return %y
    }
"""
READ = """
    graph g(%q: f32[1,4,1,8], %m: i8[1,2,9,12]) {
        %c = Slice(%m) {sizes=[1, 2, 6, 12], starts=[0, 0, 0, 0], steps=[1, 1, 1, 1]}
        %a = Reshape(%c) {shape=[1, 2, 1, 6, 12]}
        %k = Reshape(%a) {shape=[1, 2, 6, 12]}
        %v = Slice(%m) {sizes=[1, 2, 6, 12], starts=[0, 0, 0, 0], steps=[1, 1, 1, 1]}
        %y = Attention(%q, %k, %v, -) {causal=false, scale=0.5, scaled=true, softcap=0.0}
        return %y
    }
"""
CAST = """
    graph g(%q: f32[1,4,1,8], %m: i8[1,2,6,8]) {
        %k = Elementwise(%m) {expr="cast<f32>($0)"}
        %y = Attention(%q, %k, %k, -) {causal=false, scale=0.5, softcap=0.0}
        return %y
    }
"""
CASES = (
    Case("read_int8_cache", "one query, on a CPU", read_int8_cache(CPU), WIDENED.replace("SS", "1"), READ),
    Case("read_int8_cache", "one query, on a GPU", read_int8_cache(GPU), WIDENED.replace("SS", "1"), READ),
    Case("read_int8_cache", "many queries", read_int8_cache(CPU), WIDENED.replace("SS", "40")),
    Case("read_int8_cache", "no device is known", read_int8_cache(None), WIDENED.replace("SS", "1")),
    Case(
        "read_int8_cache",
        "int8 as it is",
        read_int8_cache(CPU),
        CAST,
        """
        graph g(%q: f32[1,4,1,8], %m: i8[1,2,6,8]) {
            %y = Attention(%q, %m, %m, -) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_read_bytes(case: Case) -> None:
    check(case)
