"""Which memory a kernel writes, by its PTX."""

from __future__ import annotations

import pytest

from opalite.ptx.find_written_params import read_first, written
from opalite.ptx.parse_kernel import parse_kernel

from ...helpers.ptx_kernels import SCALE, WEIGH, turn

X, Y = "scale_param_0", "scale_param_1"


def of(*instructions: str) -> frozenset[str]:
    """What `scale` writes with these instructions in it, which have %rd4 in x, and %rd5 in y once that is written."""
    text = SCALE.replace("\tadd.s64 \t%rd5", "\t" + "\n\t".join(instructions) + "\n\tadd.s64 \t%rd5")
    return written(parse_kernel(text, "scale"))


def test_what_is_stored_to() -> None:
    assert written(parse_kernel(SCALE, "scale")) == {Y}
    assert written(parse_kernel(turn(32), "turn")) == {"turn_param_1"}


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


W = "weigh_param_1"
MARK = "\t//linked-await\n"


def first(before: str = "", after: str = "", mark: str = MARK) -> frozenset[str] | None:
    """What `weigh` reads first with these instructions before and behind where it awaits other launches."""
    assert MARK in WEIGH
    return read_first(parse_kernel(WEIGH.replace(MARK, before + mark + after), "weigh"))


def test_what_is_read_first() -> None:
    assert first() == {W}
    assert first("\tadd.s64 %rd8, %rd1, %rd4;\n\tld.global.f32 %f4, [%rd8];\n") == {W, "weigh_param_0"}
    copied = "\tcp.async.cg.shared.global [%r1], [{}], 16, %r2;\n"
    assert first(copied.format("%rd5")) == {W}, "into local memory, which a step has when it begins"
    assert first("\tadd.s64 %rd8, %rd1, %rd4;\n" + copied.format("%rd8")) == {W, "weigh_param_0"}
    assert first("\t@%p1 bra $L__BB0_1;\n\tadd.u32 %r5, %r5, 1;\n$L__BB0_1:\n") == {W}, "all come by"


@pytest.mark.parametrize(
    "before",
    [
        "\tst.global.f32 [%rd7], %f1;\n",
        "\tst.shared.f32 [%r1], %f1;\n",
        "\tld.shared.f32 %f4, [%r1];\n",
        "\tbar.sync 0;\n",
        "\tatom.global.add.u32 %r1, [%rd5], 1;\n",
        "\tcp.async.cg.shared.global [%r1], [%rd18], 16, %r2;\n",
        "\tcp.async.wait_group 0;\n",
        "\tld.global.f32 %f4, [%rd18];\n",
        "\t@%p1 bra $L__BB0_9;\n",
        "\t@%p1 ret;\n",
        MARK,
    ],
)
def test_what_must_not_come_first(before: str) -> None:
    assert first(before) is None


def test_where_it_does_not_say() -> None:
    assert first(mark="") == frozenset(), "it awaits them where it begins to read"
    assert first("$L__BB0_1:\n", "\t@%p1 bra $L__BB0_1;\n") is None, "in a loop"
