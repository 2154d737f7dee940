"""What PoCL's compiler makes of kernels: the functions of OpenCL C must be inlined, or every multiply-add is a call."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from opalite.cl.runtime import Runtime

SOURCE = """
kernel void multiply_add(global const float *x, global float *y) {
    vstore16(fma(vload16(0, x), vload16(1, x), vload16(2, x)), 0, y);
}
"""


def test_library_functions_are_inlined(rt: Runtime) -> None:
    if rt.info.family != "pocl":
        pytest.skip("the device is not PoCL's")
    if "basic-" in rt.info.version:
        pytest.skip("on processors that its LLVM does not know, this device of PoCL's calls them")
    program = rt.build(SOURCE, "", "multiply_add.cl")
    x, y = rt.allocate(48 * 4), rt.allocate(16 * 4)
    values = np.arange(48, dtype=np.float32)
    rt.write(x, values)
    rt.record([rt.prepare(program, "multiply_add", [x, y], (1,), (1,))]).run()
    found = np.empty(16, np.float32)
    rt.read(y, found)
    a, b, c = values.reshape(3, 16)
    np.testing.assert_array_equal(found, a * b + c)
    binary = program.get_info(cl.program_info.BINARIES)[0]
    assert b"multiply_add" in binary
    # A function that is called has an entry of its own in the machine code's table of names; LLVM's bitcode, which is
    # there too, packs its names without ends.
    assert b"\0_Z11_cl_vload16" not in binary
    assert b"\0_Z7_cl_fmaDv16" not in binary
