"""Requests for full or half waves compile where the compiler knows the attribute: one that ignores it stands in."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.trace_function import call
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.kernels import kernel_sources
from opalite.kernels.node_launches import launches_of

from .conv_checks import as_gpu, check_kernel, find_kernel

KNOWN = "#define cl_qcom_reqd_sub_group_size 1\n"


@pytest.mark.parametrize(
    ("op", "attrs", "name", "group"),
    [
        ("Softmax", {"axis": 1, "log": False}, "SoftmaxRows", True),
        ("Elementwise", {"expr": call("exp", DType.FLOAT32)}, "ElementwiseFlat", False),
    ],
)
def test_requests_compile(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch, op: str, attrs: dict[str, Any], name: str, group: bool
) -> None:
    """With a work-group of the kernel's own, which is an attribute too, and without."""
    if rt.info.family == "adreno":
        pytest.skip("the device's own compiler knows it")
    other, adreno = as_gpu(rt), read_description("adreno_640")
    fields = {f: getattr(adreno, f) for f in ("wave_size", "full_wave", "max_waves", "register_bytes")}
    other.info = dataclasses.replace(other.info, **fields)
    head, rest = kernel_sources._common()
    monkeypatch.setattr(kernel_sources, "_common", lambda: (KNOWN + head, rest))
    x = np.random.default_rng(0).standard_normal((7, 263)).astype(np.float32)
    node, kernel = make_node(op, attrs, [x]), find_kernel(op, name)
    problem = kernel.problem(node, other.info)
    (launch,) = launches_of(kernel, problem, kernel.defaults(problem))
    assert (launch.group is not None) is group
    assert re.search(r'qcom_reqd_sub_group_size\("(full|half)"\)', launch.prelude)
    check_kernel(other, kernel, node, [x])
