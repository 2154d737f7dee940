"""fma, sin, cos and tan that programs bring where the driver links none: right wherever they are built."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.programs.missing_builtins import DEFINITIONS
from opalite.cl.runtime import Runtime

SOURCE = (
    DEFINITIONS
    + """
kernel void sums(global const float4 *a, global const float4 *b, global const float4 *c, global float4 *y) {
    const int i = get_global_id(0);
    y[i] = fma(a[i], b[i], c[i]);
}
kernel void circles(global const float *x, global float *s, global float *c, global float4 *t) {
    const int i = get_global_id(0);
    s[i] = sin(x[i]);
    c[i] = cos(x[i]);
    if (i % 4 == 0) t[i / 4] = tan(((global const float4 *)x)[i / 4]);
}
"""
)


def run(rt: Runtime, entry: str, inputs: list[np.ndarray], outputs: int, grid: int) -> list[np.ndarray]:
    program = rt.build(SOURCE, "", "stand-ins")
    made = [np.zeros_like(inputs[0]) for _ in range(outputs)]
    buffers = [rt.allocate(a.nbytes) for a in (*inputs, *made)]
    for buffer, a in zip(buffers, inputs, strict=False):
        rt.write(buffer, a)
    rt.prepare(program, entry, buffers, (grid,)).enqueue(rt.queue)
    for buffer, a in zip(buffers[len(inputs) :], made, strict=True):
        rt.read(buffer, a)
    return made


def test_fma_rounds_once_where_sums_cancel(rt: Runtime) -> None:
    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal(4096) * 10.0 ** rng.integers(-5, 6, 4096)).astype(np.float32) for _ in range(2))
    c = np.concatenate([-(a * b)[:2048], rng.standard_normal(2048).astype(np.float32)])
    wide = np.longdouble if np.finfo(np.longdouble).nmant > 60 else np.float64
    expected = (a.astype(wide) * b + c).astype(np.float32)
    (got,) = run(rt, "sums", [a, b, c], 1, 1024)
    assert np.array_equal(got, expected)
    assert np.count_nonzero(expected[:2048])


def test_what_overflows_or_is_no_number_is_like_a_plain_sum(rt: Runtime) -> None:
    inf, nan = np.inf, np.nan
    a = np.array([3e38, -3e38, inf, nan, 0.0, 1e-30, 2.0, inf], np.float32)
    b = np.array([10.0, 10.0, 0.0, 1.0, 5.0, 1e-30, 1.0, 1.0], np.float32)
    c = np.array([1.0, 1.0, 1.0, 1.0, 7.0, 3.0, -inf, -inf], np.float32)
    with np.errstate(all="ignore"):
        expected = a * b + c
    np.testing.assert_array_equal(run(rt, "sums", [a, b, c], 1, 2)[0], expected)


def test_sines_of_small_and_of_huge_angles(rt: Runtime) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(-10, 10, 2000), rng.standard_normal(2000) * 10.0 ** rng.uniform(-10, 38, 2000)])
    x = np.concatenate([x, [0.0, 1e38, -1e38, 2.0**25, np.pi, np.pi / 2, np.inf, np.nan]]).astype(np.float32)
    sine, cosine, tangent = run(rt, "circles", [x], 3, len(x))
    finite = np.isfinite(x)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        for got, expected in ((sine, np.sin(wide)), (cosine, np.cos(wide)), (tangent, np.tan(wide))):
            np.testing.assert_allclose(got[finite], expected[finite], rtol=1e-6, atol=1e-30)
            assert np.isnan(got[~finite]).all()


def test_the_trial_is_a_program(rt: Runtime) -> None:
    from opalite.cl.programs.missing_builtins import PROBE

    if "unlinked_fma" in rt.info.quirks:
        pytest.skip("it is for such a device that it does not build")
    rt.build(PROBE, "", "trial")
