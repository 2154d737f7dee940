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
        "says that no kernel runs with more than 32 work-items; sessions take such groups, tests of larger ones fail",
        "rusticl_group_limit.py",
        r"runs with work-groups up to \(\d+, \d+, \d+\), not",
    ),
    Fault(
        ("rusticl-22.3",),
        "test_a_binary_that_the_driver_refuses_is_built_again",
        "ends the process that gives it a binary which it did not write",
        "rusticl_foreign_binary.py",
    ),
    Fault(
        ("rusticl-22.3",),
        r"test_long_reductions_stay_accurate\[(sum|mean|l2|max)-shape",
        "ends every loop of a work-item after 65,535 turns in all; quirk `short_loops`: sessions leave nodes that walk "
        "so far to the host, tests of kernels alone fail",
        "rusticl_loop_limit.py",
        "ReduceStrided",
    ),
    Fault(
        ("pocl-6.0",),
        r"test_mma_stages\.py",
        "takes, by chance, values of work-items for equal in all of them where barriers part a kernel, so that what it "
        "makes of the stand-in for matrix units is wrong at times; quirk `shared_values`: sessions run no kernel whose "
        "work-items meet at barriers",
        "pocl_uniform.py",
        r"are not zero|Not equal to tolerance",
    ),
    Fault(
        ("oclgrind", "oclgrind-uninitialised"),
        r"test_reduce\.py::test_element_types\[prod-int64\]",
        "`mad_sat` of longs takes a product below zero for one that does not fit",
        "oclgrind_mad_sat.py",
    ),
)
"""Tests that fail by a fault that no quirk avoids yet."""


_PTX = "made of NVIDIA's assembly, so run and checked on its GPUs alone"

OUT_OF_REACH = dict.fromkeys(("AttentionMma", "ConvMma", "MatmulMma"), _PTX)
"""Kernels that no simulator can run, and why."""


@dataclass(frozen=True)
class Avoided:
    """A fault that a quirk of the device avoids: what it is, how it is avoided, and the program that shows it."""

    implementation: str
    what: str
    how: str
    program: str


AVOIDED = (
    Avoided(
        "pocl-6.0",
        "ends the process that compiles some programs: `LLVM ERROR: Instruction Combining did not reach a fixpoint`",
        "quirk `fragile_compiler`: worker processes compile everything, what ends one with `-cl-opt-disable`",
        "pocl_fixpoint.py",
    ),
    Avoided(
        "pocl-6.0",
        "ends the process that compiles inline assembly",
        "with the same quirk step loops that are launched have none",
        "pocl_assembly.py",
    ),
    Avoided(
        "rusticl-25.0",
        "reads the wrong image in a function that was given a vector and an image",
        "no quirk: such functions are `always_inline` for every driver, and Mesa never sees them",
        "rusticl_image_parameter.py",
    ),
    Avoided(
        "rusticl-25.0",
        "ends the process (22.3: computes wrong values) at some choices between bytes, `condition ? 1 : x`",
        "no quirk: generated code uses `select` for them everywhere",
        "rusticl_choice_of_bytes.py",
    ),
    Avoided(
        "oclgrind",
        "has no kernels with inlined `restrict` pointers, and computes wrong powers, once its own optimiser has run",
        "quirk `plain_builds`: programs are built with `-cl-opt-disable`",
        "oclgrind_optimised.py",
    ),
    Avoided(
        "oclgrind-uninitialised",
        "ends kernels with the instruction `freeze`, which its optimiser makes of divisions",
        "the same quirk",
        "oclgrind_freeze.py",
    ),
    Avoided(
        "oclgrind-uninitialised",
        "forgets what was written to a buffer when the host writes to a part of it again, and takes over what it knew "
        "of a buffer that was released",
        "the suite writes by kernels and releases no buffer (`shadow.py`)",
        "oclgrind_shadow.py",
    ),
    Avoided(
        "oclgrind-uninitialised",
        "takes lane 11 of 16 for unwritten where vectors are shuffled",
        "the suite mends an instruction in its copy (`implementations.py`)",
        "oclgrind_lane.py",
    ),
    Avoided(
        "oclgrind-uninitialised",
        "takes texels for unwritten by chance",
        "likewise",
        "oclgrind_image.py",
    ),
    Avoided(
        "oclgrind",
        "crashes where two threads build programs, or wait for queues of their own",
        "quirk `serial_builds`: one thread builds; the suite lets calls take turns (`turns.py`)",
        "oclgrind_threads.py",
    ),
)
