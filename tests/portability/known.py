"""What is an implementation's own fault: tests that fail by it, why, and the program that shows it without Opalite."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`tests` is a regular expression on test ids, `text` on what failures say; `program` a file of faults."""

    implementations: tuple[str, ...]
    tests: str
    why: str
    program: str
    text: str = ""

    def explains(self, implementation: str, test: str, text: str = "") -> bool:
        """Whether this is why `test` fails on `implementation`, saying `text`."""
        is_it = implementation in self.implementations and re.search(self.tests, test) is not None
        return is_it and re.search(self.text, text) is not None


FAULTS: tuple[Fault, ...] = (
    Fault(
        ("rusticl-22.3",),
        "",
        "reports that no kernel runs with more than 32 work-items; sessions use groups of that size, and tests "
        "of larger ones fail",
        "rusticl_group_limit.py",
        r"runs with work-groups up to \(\d+, \d+, \d+\), not",
    ),
    Fault(
        ("rusticl-22.3",),
        "test_a_binary_that_the_driver_refuses_is_built_again",
        "terminates a process that gives it a binary which it did not write itself",
        "rusticl_foreign_binary.py",
    ),
    Fault(
        ("rusticl-22.3",),
        r"test_long_reductions_stay_accurate\[(sum|mean|l2|max)-shape",
        "stops the loops of a work-item after 65,535 iterations in all; quirk `short_loops`: sessions run nodes that "
        "need more on the host; tests of single kernels fail",
        "rusticl_loop_limit.py",
        "ReduceAnyAxes",
    ),
    Fault(
        ("oclgrind", "oclgrind-uninitialised"),
        r"test_reduce\.py::test_element_types\[prod-int64\]",
        "`mad_sat` of longs treats a negative product as an overflow",
        "oclgrind_mad_sat.py",
    ),
)
"""Tests that fail by a fault that no quirk avoids yet."""


_PTX = "written in NVIDIA's assembly language, so run and checked on its GPUs only"

OUT_OF_REACH = dict.fromkeys(("AttentionFlashMma", "ConvGemmMma", "MatmulMma"), _PTX)
"""Kernels that no simulator can run, and why."""


@dataclass(frozen=True)
class Avoided:
    """A fault that a quirk of the device avoids: what it is, how it is avoided, and the program that shows it."""

    implementations: tuple[str, ...]
    what: str
    how: str
    program: str


AVOIDED = (
    Avoided(
        ("pocl-5.0", "pocl-6.0"),
        "sometimes takes a value to be equal in all work-items although it is not, in kernels with barriers",
        "quirk `shared_values`: sessions run no kernel with barriers between work-items, and what stands in for matrix "
        "units is not tested",
        "pocl_uniform.py",
    ),
    Avoided(
        ("pocl-6.0",),
        "terminates the process while it compiles some programs: `LLVM ERROR: "
        "Instruction Combining did not reach a fixpoint`",
        "quirk `fragile_compiler`: worker processes compile everything, and a program that terminates one is compiled "
        "with `-cl-opt-disable`",
        "pocl_fixpoint.py",
    ),
    Avoided(
        ("pocl-5.0", "pocl-6.0"),
        "terminates the process while it compiles a kernel with inline assembly",
        "quirk `no_assembly`: no kernel contains any, and that of step loops stands in a function that is called",
        "pocl_assembly.py",
    ),
    Avoided(
        ("pocl-5.0", "pocl-6.0"),
        "terminates the process while it compiles a kernel without optimisation that declares a local variable and "
        "does not use it",
        "no quirk: kernels declare none",
        "pocl_unused_local.py",
    ),
    Avoided(
        ("pocl-5.0", "pocl-6.0"),
        "takes the address of `vload_half8` for a multiple of 16 bytes in some loops, and terminates the process where "
        "it is none",
        "no quirk: on CPUs whose compiler is newer than LLVM 14, kernels move halves in vectors of bits that say how "
        "they lie (`include/common.cl`)",
        "pocl_half_vectors.py",
    ),
    Avoided(
        ("rusticl-25.0",),
        "reads the wrong image in a function that takes a vector and an image",
        "no quirk: such functions are `always_inline` for every driver, so Mesa never sees a call",
        "rusticl_image_parameter.py",
    ),
    Avoided(
        ("rusticl-25.0",),
        "terminates the process (22.3: computes wrong values) for some conditional expressions of bytes, "
        "`condition ? 1 : x`",
        "no quirk: generated code uses `select` instead everywhere",
        "rusticl_choice_of_bytes.py",
    ),
    Avoided(
        ("rusticl-22.3", "rusticl-25.0", "rusticl-26"),
        "terminates the process (22.3, 26: does nothing) where 80 branches, or cases of a `switch`, lie in each other",
        "quirk `shallow_flow`: the general kernel of elementwise expressions has several switches in turn",
        "rusticl_shallow_flow.py",
    ),
    Avoided(
        ("rusticl-26",),
        "does not link `fma`, `sin`, `cos` and `tan` (`nir_shader not fully linked`) with LLVM's libclc",
        "quirk `unlinked_fma`, found by a trial: programs bring their own (`cl/programs/missing_builtins.py`)",
        "rusticl_unlinked_fma.py",
    ),
    Avoided(
        ("oclgrind",),
        "loses kernels with inlined `restrict` pointers, and computes wrong powers, once its own optimiser has run",
        "quirk `plain_builds`: programs are built with `-cl-opt-disable`",
        "oclgrind_optimised.py",
    ),
    Avoided(
        ("oclgrind-uninitialised",),
        "aborts kernels with the instruction `freeze`, into which its optimiser turns divisions",
        "the same quirk",
        "oclgrind_freeze.py",
    ),
    Avoided(
        ("oclgrind-uninitialised",),
        "forgets what was written to a buffer when the host writes to part of it again, and carries over what it knew "
        "about a buffer that was released",
        "the suite writes with kernels and releases no buffer (`shadow.py`)",
        "oclgrind_shadow.py",
    ),
    Avoided(
        ("oclgrind-uninitialised",),
        "considers lane 11 of 16 unwritten after a shuffle of vectors",
        "the suite patches an instruction in its copy of Oclgrind (`implementations.py`)",
        "oclgrind_lane.py",
    ),
    Avoided(
        ("oclgrind-uninitialised",),
        "considers texels unwritten at random",
        "patched in the same way",
        "oclgrind_image.py",
    ),
    Avoided(
        ("oclgrind",),
        "crashes when two threads build programs, or wait for their own queues",
        "quirk `serial_builds`: only one thread builds; the suite serialises calls (`turns.py`)",
        "oclgrind_threads.py",
    ),
)
