"""PoCL compiles the body of a general kernel once, not in each of the three functions that it makes of a kernel."""

from __future__ import annotations

import re

import pytest

from opalite.cl.runtime import Runtime
from opalite.plan.generic_programs import generic_programs

_BODY = re.compile(r"^static void (\w+)\([^)]*PARAMETERS\)", re.MULTILINE)
_LLVM = 14  # of the PoCL that this was made for


def test_bodies_are_functions_of_their_own(rt: Runtime) -> None:
    if rt.info.family != "pocl" or f"LLVM {_LLVM}" not in f"{rt.info.version} {rt.device.platform.version}":
        pytest.skip(f"PoCL with LLVM {_LLVM}")
    found = 0
    for source in generic_programs(rt.info):
        body = _BODY.search(source.text)
        if body is None:
            continue
        machine_code = rt.programs.binary(*source.parts).partition(b"\x7fELF")[2]
        assert machine_code
        assert body[1].encode() in machine_code, f"{body[1]} of {source.name} was inlined"
        found += 1
    assert found
