"""The program of the general kernel of elementwise expressions."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from opalite.ir.device.device_family import SHALLOW_FLOW
from opalite.ir.device.device_info import DeviceInfo
from opalite.kernels.generic.interpreter_operations import FLOATS, MORE, program_of


@pytest.mark.parametrize("is_float, count", [(True, len(FLOATS)), (False, len(FLOATS) + len(MORE))])
def test_a_device_of_shallow_flow_gets_several_short_switches(is_float: bool, count: int) -> None:
    device = DeviceInfo(kind="cpu", wave_size=8)
    whole = program_of(is_float, 4, device)
    parts = program_of(is_float, 4, replace(device, quirks=(SHALLOW_FLOW,)))
    switches = parts.split("} switch (step_code[0]) {")
    cases = [re.findall(r"\bcase (\d+):", part) for part in switches]
    assert max(map(len, cases)) < 40
    every = [case for of_switch in cases for case in of_switch]
    assert every == re.findall(r"\bcase (\d+):", whole)
    assert len(every) == count
    assert "switch" not in whole.partition("#define OPERATIONS")[2]
