"""Programs' PTX with what Hopper alone has: text in, text out."""

from __future__ import annotations

import pytest

from opalite.ptx.retarget_sm90a import RetargetError, is_marked, retarget

TEXT = """\
.version 9.0
.target sm_90, texmode_independent
.address_size 64

.entry product(
	.param .u64 .ptr .global .align 2 product_param_0
)
.reqntid 256, 1, 1
{
	// demoted variable
	.shared .align 1024 .b8 product_$_room[96];
	.shared .align 4 .b8 product_$_bedroom[96];
	// begin inline asm
	//hopper-local room 131168
	// end inline asm
	// begin inline asm
	//hopper wgmma.fence.sync.aligned;
	// end inline asm
	// begin inline asm
	//hopper wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, %rd1, 1, 1, 1, 0;
	// end inline asm
	ret;
}
"""


def test_marked_instructions_become_instructions() -> None:
    assert is_marked(TEXT)
    lines = retarget(TEXT).splitlines()
    assert "\twgmma.fence.sync.aligned;" in lines
    assert lines.count("\t// begin inline asm") == 3
    multiply = next(line for line in lines if "mma_async" in line)
    assert multiply.endswith("{%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, %rd1, 1, 1, 1, 0;")
    assert not multiply.lstrip().startswith("//")


def test_the_target_and_the_named_variable_change_and_nothing_else() -> None:
    before, after = TEXT.splitlines(), retarget(TEXT).splitlines()
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b and "wgmma" not in a]
    assert changed == [
        (".target sm_90, texmode_independent", ".target sm_90a, texmode_independent"),
        ("\t.shared .align 1024 .b8 product_$_room[96];", "\t.shared .align 1024 .b8 product_$_room[131168];"),
    ]


@pytest.mark.parametrize("target", ["sm_80", "sm_100", "sm_90a", "sm_901"])
def test_other_targets_are_refused(target: str) -> None:
    with pytest.raises(RetargetError, match="sm_90"):
        retarget(TEXT.replace("sm_90,", f"{target},"))


def test_a_missing_variable_is_an_error() -> None:
    with pytest.raises(RetargetError, match="0 local variables room"):
        retarget(TEXT.replace("$_room[96]", "$_hall[96]"))
