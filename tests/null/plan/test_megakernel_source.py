"""Kernels as functions of a step loop: which may become one, and how they read their arguments."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import opalite.kernels
from opalite.kernels.kernel_sources import read_source
from opalite.plan.megakernel_source import (
    function_text,
    group_counts,
    loop_text,
    packed_scalar,
    signature,
    step_refusal,
)
from opalite.plan.program import LaunchStep, LocalArg, ScalarArg, SlotArg, SourceSpec

PLAIN = "kernel void f(global float *y, int n) {\n    y[get_global_id(0)] = n;\n}\n"
OTHER = "kernel void g(global float *y) {\n    barrier(CLK_LOCAL_MEM_FENCE);\n}\n"
MEETING = "kernel void f(global float *y, int n) {\n    barrier(CLK_LOCAL_MEM_FENCE);\n}\n"


ARGS = (SlotArg(0), ScalarArg(np.int32(5)))


def step(group=(1,), args=ARGS, grid=(8,)) -> LaunchStep:
    return LaunchStep(0, "f", args, grid, group)


def test_plain_kernel_may_become_a_function():
    assert step_refusal(SourceSpec(PLAIN + OTHER, ""), step()) is None


@pytest.mark.parametrize("group, options, allowed", [((1,), "", True), ((4,), "", False), ((4,), "-DWG=1", True)])
def test_barrier_needs_work_items_that_are_alone(group, options, allowed):
    why = step_refusal(SourceSpec(MEETING, options), step(group))
    assert (why is None) == allowed, why


def test_refusals_say_why():
    image = PLAIN.replace("global float *y", "image2d_t y")
    assert "images" in step_refusal(SourceSpec(image, ""), step())
    half = step(args=(SlotArg(0), ScalarArg(np.float16(1))))
    assert "float16" in step_refusal(SourceSpec(PLAIN, ""), half)
    grid = PLAIN.replace("{\n", "{\n    const int n = get_global_size(0);\n", 1)
    assert "grid" in step_refusal(SourceSpec(grid, ""), step())
    assert "one block" in step_refusal(SourceSpec(PLAIN.replace("\n}", " }"), ""), step())


def test_function_leaves_other_kernels_out():
    text = function_text(PLAIN + OTHER, step(), "step_7")
    assert "void step_7(" in text
    assert "void g(" not in text
    assert not re.search(r"^kernel ", text, re.MULTILINE)
    assert "(global void *)a[0], (int)a[1]" in text


def test_local_memory_becomes_the_functions_own():
    text = function_text(PLAIN, step(args=(SlotArg(0), LocalArg(96))), "step_0")
    assert "char local_1[96]" in text


def test_signature_tells_apart_what_the_text_depends_on():
    a = step()
    assert signature(a) == signature(step(args=(SlotArg(9), ScalarArg(np.int32(8))), grid=(64,)))
    assert signature(a) != signature(step(args=(SlotArg(0), ScalarArg(np.float32(5)))))
    assert signature(a) != signature(step(group=(4,)))


def test_groups_and_numbers():
    assert group_counts((8, 6), (4, 2)) == ((2, 3, 1), (4, 2, 1))
    assert packed_scalar(np.int32(-1)) == 0xFFFFFFFF
    assert packed_scalar(np.float32(1)) == 0x3F800000


def test_loop_calls_every_function():
    for stays, kernel, other in ((False, "run_steps", "serve_steps"), (True, "serve_steps", "run_steps")):
        text = loop_text(3, stays, 4)
        assert all(f"case {i}: step_{i}(" in text for i in range(3))
        assert f"kernel void {kernel}(" in text
        assert other not in text  # each kernel takes as long to compile as all steps


def test_assembly_stands_in_functions_that_are_called():
    """PoCL 5 and 6 do not compile a kernel with assembly in it."""
    for stays in (False, True):
        bodies = loop_text(1, stays, 4).split("\n}\n")
        assert all("__attribute__((noinline))" in body for body in bodies if "__asm__ volatile" in body)


def test_helpers_of_kernels_belong_to_their_source():
    # Sources are linked with each other, where an inline function that is not static meets its namesakes.
    folder = Path(opalite.kernels.__file__).parent
    paths = sorted(folder.rglob("*.cl"))
    assert len(paths) > 50
    for path in paths:
        source = read_source(path.relative_to(folder).as_posix())
        assert not re.search(r"^inline ", source, re.MULTILINE), path
