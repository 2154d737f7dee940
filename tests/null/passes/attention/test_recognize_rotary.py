"""passes/attention/rotary.py: rotary embeddings that exporters wrote out."""

from __future__ import annotations

import pytest

from opalite.passes.attention.rotary import recognize_rotary

from ..texts import Case, check

SLICES = """
            %l = Slice(%t) {sizes=[1,2,3,4], starts=[0,0,0,0], steps=[1,1,1,1]}
            %h = Slice(%t) {sizes=[1,2,3,4], starts=[0,0,0,4], steps=[1,1,1,1]}
"""
HALVES = """
        graph g(%x: f32[1,3,2,8], %c: f32[1,1,3,4], %s: f32[1,1,3,4]) {
            %t = Transpose(%x) {perm=[0,2,1,3]}
            SLICES
            %a = Elementwise(%l, %c) {expr="mul($0, $1)"}
            %b = Elementwise(%h, %s) {expr="mul($0, $1)"}
            %p = Elementwise(%a, %b) {expr="SUB($0, $1)"}
            %q = Elementwise(%l, %h, %c, %s) {expr="mul($0, $3); mul($1, $2); add(%0, %1)"}
            %y = Concat(%p, %q) {axis=3}
            return %y
        }
""".replace("SLICES", SLICES)
WHOLE = """
        graph g(%x: f32[1,3,2,8], %c: f32[3,8], %s: f32[3,8]) {
            %t = Transpose(%x) {perm=[0,2,1,3]}
            SLICES
            %n = Elementwise(%h) {expr="neg($0)"}
            %r = Concat(FIRST, SECOND) {axis=3}
            %a = Elementwise(%t, %c) {expr="mul($0, $1)"}
            %b = Elementwise(%r, %s) {expr="mul($0, $1)"}
            %y = Elementwise(%b, %a) {expr="add($0, $1)"}
            return %y
        }
""".replace("SLICES", SLICES)
CASES = (
    Case(
        "recognize_rotary",
        "halves apart",
        recognize_rotary,
        HALVES.replace("SUB", "sub"),
        """
        graph g(%x: f32[1,3,2,8], %c: f32[1,1,3,4], %s: f32[1,1,3,4]) {
            %y = RotaryEmbedding(%x, %c, %s) {perm=[0,2,1,3]}
            return %y
        }
        """,
    ),
    Case("recognize_rotary", "halves that are no rotation", recognize_rotary, HALVES.replace("SUB", "add")),
    Case(
        "recognize_rotary",
        "x cos + turned sin",
        recognize_rotary,
        WHOLE.replace("FIRST", "%n").replace("SECOND", "%l"),
        """
        graph g(%x: f32[1,3,2,8], %c: f32[3,8], %s: f32[3,8]) {
            %y = RotaryEmbedding(%x, %c, %s) {perm=[0,2,1,3]}
            return %y
        }
        """,
    ),
    Case(
        "recognize_rotary",
        "x cos + mirrored sin",
        recognize_rotary,
        WHOLE.replace("FIRST", "%l").replace("SECOND", "%n"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rotations(case: Case) -> None:
    check(case)
