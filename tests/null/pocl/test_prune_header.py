"""Kernels are marked to be compiled once wherever they stand, and left alone where the program has assembly."""

from __future__ import annotations

import pytest

from opalite.pocl.prune_header import mark_kernels

MARK = "{ OPALITE_COMPILED_ONCE"


@pytest.mark.parametrize(
    "head",
    [
        "kernel void k(global int *x) {",
        "__kernel void k(global int *x) {",
        "kernel void k(\n    global const int *restrict x,\n    int n // rows\n) {",
        "kernel __attribute__((reqd_work_group_size(1, 1, 1))) void k(PARAMETERS) {",
        "__attribute__((reqd_work_group_size(1, 1, 1)))\nkernel void k(PARAMETERS)\n{",
        "kernel ROW_GROUP void k(global int *x) {",
    ],
)
def test_kernels_are_marked(head: str) -> None:
    text = f"#define ROW_GROUP\nstatic int f(int x) {{ return x; }}\n{head}\n    x[0] = 1;\n}}\n"
    marked = mark_kernels(text)
    assert marked == text.replace(head, head[:-1] + MARK)
    assert marked.count("\n") == text.count("\n"), "errors name the lines of the text"


def test_every_kernel_of_a_program_is_marked() -> None:
    text = "kernel void a(global int *x) { x[0] = 1; }\nkernel void b(global int *x) {\n    x[0] = 2;\n}\n"
    assert mark_kernels(text).count(MARK) == 2


@pytest.mark.parametrize(
    "text",
    [
        "// a kernel that is void (of meaning) {\nint f(int x) { return x; }",
        "kernel void k(global int *x);\nint f(int x) { return x; }",
        "#define OPEN(name) kernel void name(global int *x) {\n",
    ],
)
def test_what_is_no_kernel_is_left_alone(text: str) -> None:
    assert mark_kernels(text) == text


def test_kernels_with_barriers_are_marked() -> None:
    text = "kernel void k(local int *x) { x[0] = 1; barrier(CLK_LOCAL_MEM_FENCE); x[1] = x[0]; }"
    assert MARK in mark_kernels(text)


def test_programs_with_assembly_are_left_alone() -> None:
    """The host calls a function of a step loop's program."""
    text = 'extern constant uchar code[] __asm__("f");\nkernel void k(global ulong *x) { x[0] = (ulong)code; }'
    assert mark_kernels(text) == text
    assert MARK in mark_kernels(text.replace(' __asm__("f")', "") + " // no __asm__")
