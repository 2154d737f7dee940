"""passes/quantization/fuse_requantize.py: between a dequantiser and a quantiser alike, integers are moved."""

from __future__ import annotations

import pytest

from opalite.passes.quantization.fuse_requantize import fuse_requantize

from ..texts import Case, check

CASES = (
    Case(
        "fuse_requantize",
        "the same scale",
        fuse_requantize,
        """
        graph g(%x: u8[2,4]) {
            const %s: f32[] = [0.5]
            const %t: f32[] = [0.5]
            const %z: u8[] = [3]
            %d = Elementwise(%x, %s, %z) {expr="cast<i32>($0); cast<i32>($2); sub(%0, %1); cast<f32>(%2); mul(%3, $1)"}
            %r = Reshape(%d) {shape=[8]}
            %y = Elementwise(%r, %t, %z) {expr="div($0, $1); rint(%0); cast<f32>($2); add(%1, %2); saturate<u8>(%3)"}
            return %y
        }
        """,
        """
        graph g(%x: u8[2,4]) {
            %y = Reshape(%x) {shape=[8]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_requantize",
        "another scale",
        fuse_requantize,
        """
        graph g(%x: u8[2,4]) {
            const %s: f32[] = [0.5]
            const %t: f32[] = [0.25]
            const %z: u8[] = [3]
            %d = Elementwise(%x, %s, %z) {expr="cast<i32>($0); cast<i32>($2); sub(%0, %1); cast<f32>(%2); mul(%3, $1)"}
            %r = Reshape(%d) {shape=[8]}
            %y = Elementwise(%r, %t, %z) {expr="div($0, $1); rint(%0); cast<f32>($2); add(%1, %2); saturate<u8>(%3)"}
            return %y
        }
        """,
    ),
)


# The same pair as above; what is between is read elsewhere, or the scale has no exact way back.
READ = CASES[0].before.replace("return %y", "return %y, %r")
SMALL = CASES[0].before.replace("[0.5]", "[1e-38]")
STAY = tuple(
    Case("fuse_requantize", title, fuse_requantize, text)
    for title, text in (("floats between are an output too", READ), ("a scale beyond floats' range", SMALL))
)


@pytest.mark.parametrize("case", [*CASES, *STAY], ids=str)
def test_pass(case: Case) -> None:
    check(case)
