"""Tests of kernels: one node on a device with guards around its outputs, and the variations of a kernel's cases.

from opalite.kernel.testing import assert_file

def test_roll() -> None:
    assert_file(Path(__file__).with_name("roll.py"))
"""

from __future__ import annotations

import os

from .check_kernels import Check, assert_checks, check_kernel, check_module
from .checks_in_child import Checked, check_file
from .single_node import make_node, run_node, time_node, uneven_group
from .time_rivals import Race, Rival, time_module

__all__ = [
    "Check",
    "Checked",
    "Race",
    "Rival",
    "assert_checks",
    "assert_file",
    "check_file",
    "check_kernel",
    "check_module",
    "make_node",
    "run_node",
    "time_module",
    "time_node",
    "uneven_group",
]


def assert_file(path: str | os.PathLike[str], device: str | None = None) -> None:
    """AssertionError unless all kernels and operators that a .py file registers pass their checks on a device.

    They run in a process of their own, which a faulty kernel may end.
    """
    assert_checks(check_file(os.fspath(path), device).checks)
