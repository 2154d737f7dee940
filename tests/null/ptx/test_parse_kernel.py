"""Kernels found in texts of PTX, and those that cannot be a part of another."""

from __future__ import annotations

import pytest

from opalite.ptx.parse_kernel import Param, PtxKernelError, Shared, parse_kernel

from ...helpers.ptx_kernels import HEAD, SCALE, turn


def test_a_kernel() -> None:
    entry = parse_kernel(SCALE, "scale")
    assert entry.params[0] == Param("scale_param_0", "u64", "global")
    assert entry.params[2] == Param("scale_param_2", "f32", "")
    assert not entry.has_barrier
    assert not entry.has_warp_operations


def test_shared_memory() -> None:
    entry = parse_kernel(turn(64), "turn")
    assert entry.shared == (Shared("turn_$_seen", 4, 256),)
    assert ".shared .align" not in entry.body
    assert entry.has_barrier
    assert not entry.has_warp_operations, "bar.sync is no instruction of a warp"


def test_one_of_several() -> None:
    both = SCALE + turn(32)[len(HEAD) :]
    assert parse_kernel(both, "turn").shared
    assert parse_kernel(both, "scale").shared == ()
    with pytest.raises(PtxKernelError, match="kernel other is not in its program"):
        parse_kernel(both, "other")


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("call.uni _pow, (%r1);", "calls functions"),
        ("tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %r2}];", "images"),
        ("bar.sync 1, 64;", "barriers other than bar.sync 0"),
        ("bar.arrive 1, 64;", "barriers other than bar.sync 0"),
        ("bar.warp.sync 15;", "barriers other than bar.sync 0"),
        ("mov.u32 %r1, %smid;", "where it runs"),
        ("mov.b32 %r1, %envreg6;", "reads launch sizes"),
        ("ld.relaxed.gpu.global.u32 %r1, [%rd1];", "its groups wait for each other"),
        ("cp.async.bulk.commit_group;", "instructions on whole kernels"),
    ],
)
def test_what_cannot_be_a_part(instruction: str, reason: str) -> None:
    with pytest.raises(PtxKernelError, match=reason):
        parse_kernel(SCALE.replace("\tret;", f"\t{instruction}\n\tret;"), "scale")


@pytest.mark.parametrize("outside", [".const .align 4 .b8 table[16];", ".func _pow()\n{\n}", ".global .b32 n;"])
def test_what_stands_beside_kernels(outside: str) -> None:
    with pytest.raises(PtxKernelError, match="beside kernels"):
        parse_kernel(SCALE.replace(".entry", f"{outside}\n.entry"), "scale")


def test_instructions_of_a_warp() -> None:
    warped = SCALE.replace("\tret;", "\tshfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;\n\tret;")
    assert parse_kernel(warped, "scale").has_warp_operations


def test_inline_assembly_with_braces_of_its_own() -> None:
    block = "{\n.reg .b16 low, high;\nmov.b32 {low, high}, %r1;\n}"
    entry = parse_kernel(SCALE.replace("\tret;", f"\t{block}\n\tret;"), "scale")
    assert block in entry.body
    assert "ret;" in entry.body, "a brace at the beginning of a line does not end the kernel"


def test_a_kernel_without_its_end() -> None:
    with pytest.raises(PtxKernelError, match="ends within it"):
        parse_kernel(SCALE[: SCALE.rindex("}")], "scale")
