"""Which memory a kernel writes, by its PTX."""

from __future__ import annotations

import pytest

from opalite.ptx.entry import find_entry
from opalite.ptx.writes import written

from ...helpers.ptx_kernels import SCALE, turn

X, Y = "scale_param_0", "scale_param_1"


def of(*instructions: str) -> frozenset[str]:
    """What `scale` writes with these instructions in it, which have %rd4 in x, and %rd5 in y once that is written."""
    text = SCALE.replace("\tadd.s64 \t%rd5", "\t" + "\n\t".join(instructions) + "\n\tadd.s64 \t%rd5")
    return written(find_entry(text, "scale"))


def test_what_is_stored_to() -> None:
    assert written(find_entry(SCALE, "scale")) == {Y}
    assert written(find_entry(turn(32), "turn")) == {"turn_param_1"}


@pytest.mark.parametrize(
    "instructions",
    [
        ["st.global.v4.f32 [%rd4+16], {%f1, %f1, %f1, %f1};"],
        ["@%p1 st.global.f32 [%rd4], %f1;"],
        ["red.global.add.f32 [%rd4], %f1;"],
        ["atom.global.add.u32 %r1, [%rd4], 1;"],
        ["mov.u64 %rd11, %rd4;", "selp.b64 %rd12, %rd11, %rd2, %p1;", "st.global.f32 [%rd12], %f1;"],
        ["add.s64 %rd11, %rd11, 4;", "st.global.f32 [%rd11], %f1;", "mov.u64 %rd11, %rd1;"],
    ],
)
def test_x_too(instructions: list[str]) -> None:
    assert of(*instructions) == {X, Y}


def test_where_a_pointer_cannot_be_followed() -> None:
    assert of("st.local.u64 [%rd12], %rd4;") == {X, Y}, "it may be loaded again"
    assert of("st.f32 [%rd12], %f1;") == {X, Y}, "memory of a kind that is not told"


@pytest.mark.parametrize(
    "instruction",
    [
        "ld.global.f32 %f4, [%rd4+8];",
        "cp.async.cg.shared.global [%r1], [%rd4], 16, %r2;",
        "st.shared.f32 [%r1], %f1;",
        "ld.global.u32 %r11, [%rd4];",
    ],
)
def test_what_is_only_read(instruction: str) -> None:
    assert of(instruction) == {Y}
