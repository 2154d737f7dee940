"""Functions for results that are stored as halves, on floats of all sizes."""

from __future__ import annotations

import math

import numpy as np
import pyopencl as cl
import pytest

from opalite.cl.runtime import Runtime
from opalite.kernels.codegen.fast_math import SHORT, short_helper
from opalite.kernels.codegen.vector_types import Vec

WANTED = {"erf": math.erf, "tanh": math.tanh, "sigmoid": lambda x: 0.5 + 0.5 * math.tanh(x / 2)}
SIZES = np.concatenate([np.geomspace(1e-7, 20, 4000), [0, 1e3, 3e38, np.inf]]).astype(np.float32)


@pytest.fixture(scope="module")
def program(rt: Runtime) -> cl.Program:
    t = Vec("float", 4)
    text = "".join(
        short_helper(name, t)
        + f"kernel void all_{name}(global const float4 *x, global float4 *y) {{ const int i = get_global_id(0); "
        f"y[i] = short_{name}_{t}(x[i]); }}\n"
        for name in sorted(SHORT)
    )
    return cl.Program(rt.context, text).build()


@pytest.mark.parametrize("name", sorted(SHORT))
def test_they_are_as_near_as_halves_need(rt: Runtime, program: cl.Program, name: str) -> None:
    x = np.concatenate([SIZES, -SIZES, np.full(-2 * SIZES.size % 4 + 4, np.nan, np.float32)])
    y = np.empty_like(x)
    source, target = rt.allocate(x.nbytes), rt.allocate(x.nbytes)
    rt.write(source, x)
    getattr(program, f"all_{name}")(rt.queue, (x.size // 4,), None, source, target)
    rt.read(target, y)
    want = np.array([WANTED[name](float(v)) for v in x])
    np.testing.assert_allclose(y, want, rtol=0, atol=3e-7)
    large = np.abs(x) > 100
    np.testing.assert_array_equal(y[large], want[large])
