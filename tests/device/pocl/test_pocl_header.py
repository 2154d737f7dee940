"""Programs for PoCL bring the declarations that they name: the same results, and nothing lost where that fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from opalite.cl.runtime import Runtime
from opalite.errors import BuildError
from opalite.kernels.kernel_sources import program_text
from opalite.pocl import prune_header as pocl_header
from opalite.pocl.prune_header import GUARD, OPTION, PrunedHeader, build_with_pruned_header, find_header

HEADER = """/* A header
   of fifty functions; all of them */
#ifndef _OPENCL_H_
#define _OPENCL_H_
#include "opencl-c-base.h"
#if defined(a) && \\
    defined(b)
float __ovld far(float x); // one line; and more
float __ovld far(float2 x,
                 int y);
#endif // defined(a) && \\
       defined(b)
int __ovld __cnfn near(int);
uint8 __ovld convert_uint8(float8);
uint8 __ovld convert_uint8_sat(float8);
#endif
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "opencl-c-base.h").write_text("typedef unsigned int uint;")
    (tmp_path / "opencl-c.h").write_text(HEADER)
    return tmp_path


def test_all_overloads_of_what_is_named_and_plain_conversions_come_along(folder: Path) -> None:
    text, options = PrunedHeader(folder).program("void k() { far(1); }", "-DX=1")
    assert options == f"{OPTION} -DX=1"
    assert text.startswith("typedef unsigned int uint;")
    assert text.endswith("#line 1\nvoid k() { far(1); }")
    assert "float __ovld far(float x);" in text
    assert "float __ovld far(float2 x,\n                 int y);" in text
    assert "convert_uint8(float8);" in text
    for left in ("near", "convert_uint8_sat", "#include", "fifty"):
        assert left not in text
    assert text.count("#if") == text.count("#endif") == 2
    assert "#if defined(a) && \\\n    defined(b)\n" in text


def test_a_header_without_the_guard_is_not_touched(folder: Path) -> None:
    (folder / "opencl-c.h").write_text("int near(int);")
    with pytest.raises(ValueError, match=GUARD):
        PrunedHeader(folder)
    (folder / "opencl-c.h").unlink()
    with pytest.raises(OSError, match=r"opencl-c\.h"):
        PrunedHeader(folder)


def pocl_header_of(rt: Runtime) -> PrunedHeader:
    header = find_header() if rt.info.family == "pocl" else None
    if header is None:
        pytest.skip("no PoCL whose header is known")
    return header


KERNEL = """
kernel void k(global float *x, global const half *h, int n) {
    const size_t i = get_global_id(0);
    float4 v = exp(vload4(i, x)) * (float)(0.1 * n * 0.3) + vload_half4(i, h);
    v = select(v, convert_float4_rte(as_int4(v) % n), isgreater(v, (float4)(1.5f)));
    vstore4(fma(v, v, mix(v.wzyx, v, 0.3f)), i, x);
}
"""


def test_results_are_the_ordinary_ones(rt: Runtime) -> None:
    header = pocl_header_of(rt)
    rng = np.random.default_rng(3)
    x, h = rng.standard_normal(400).astype(np.float32), rng.standard_normal(400).astype(np.float16)
    found = []
    for text, options in ((KERNEL, ""), header.program(KERNEL, "")):
        program = cl._Program(rt.context, text)
        program._build(options.encode(), [rt.device])
        buffers = [rt.allocate(x.nbytes), rt.allocate(h.nbytes)]
        rt.write(buffers[0], x)
        rt.write(buffers[1], h)
        rt.prepare(program, "k", [*buffers, np.int32(7)], (100,)).enqueue(rt.queue)
        got = np.empty_like(x)
        rt.read(buffers[0], got)
        found.append(got)
    assert np.isfinite(found[0]).all()
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))


def test_a_kernel_is_compiled_once(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    defines = "-DFETCH=2 -DKS=4 -DMR=1 -DNV=2 -DPACK=16 -DPANELS=1 -DSTORAGE=0 -DTRANS_A=0"
    once, thrice = build_once_and_thrice(rt, monkeypatch, program_text("matmul/gemm_cpu.cl"), defines)
    assert code_bytes(once) < 0.9 * code_bytes(thrice), "three bodies"


SUMS = """
kernel void k(global float *x, global float *y, int n) {
    local float parts[16];
    const int i = get_local_id(0), size = get_local_size(0);
    float sum = 0;
    for (int from = 0; from < n; from += size) {
        parts[i] = from + i < n ? x[from + i] : 0;
        for (int step = size / 2; step > 0; step /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (i < step) parts[i] += parts[i + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        sum += parts[0];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (n < 0) return;
    }
    y[get_global_id(0)] = sum * (1 + i);
}
"""


def test_a_kernel_with_barriers_is_compiled_once(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(1001, dtype=np.float32)
    programs = build_once_and_thrice(rt, monkeypatch, SUMS, "")
    for program in programs:
        source, target = rt.allocate(x.nbytes), rt.allocate(32 * 4)
        rt.write(source, x)
        rt.prepare(program, "k", [source, target, np.int32(x.size)], (32,), (16,)).enqueue(rt.queue)
        got = np.empty(32, np.float32)
        rt.read(target, got)
        np.testing.assert_allclose(got, x.sum(dtype=np.float64) * np.tile(np.arange(1, 17), 2), rtol=1e-6)
    assert code_bytes(programs[0]) < 0.9 * code_bytes(programs[1]), "three bodies"


def build_once_and_thrice(rt: Runtime, monkeypatch: pytest.MonkeyPatch, text: str, defines: str) -> list[cl._Program]:
    header = pocl_header_of(rt)
    if "PoCL 3" not in rt.device.platform.version:
        pytest.skip("PoCL 3")
    programs = []
    for mark in (pocl_header.mark_kernels, str):
        monkeypatch.setattr(pocl_header, "mark_kernels", mark)
        given, options = header.program(text, defines)
        program = cl._Program(rt.context, given)
        program._build(options.encode(), [rt.device])
        programs.append(program)
    return programs


def code_bytes(program: cl._Program) -> int:
    return len(program.get_info(cl.program_info.BINARIES)[0].partition(b"\x7fELF")[2])


def test_few_declarations_are_left(rt: Runtime) -> None:
    text, _ = pocl_header_of(rt).program(program_text("matmul/matmul_any.cl"), "")
    assert "float16 __ovld vload16" in text.replace("__purefn ", "")
    assert text.count("__ovld") < 2000, "of 16,000"


def test_what_does_not_build_lightly_is_built_in_the_ordinary_way(rt: Runtime) -> None:
    pocl_header_of(rt)
    made: list[str] = []

    def make(text: str, options: str) -> cl._Program:
        made.append(options)
        program = cl._Program(rt.context, text)
        program._build(options.encode(), [rt.device])
        return program

    pasted = "#define CAT(a, b) a##b\nkernel void k(global float *x) { x[0] = CAT(na, tive_sqrt)(x[1]); }"
    build_with_pruned_header(make, pasted, "-w", cl.Error)
    assert made == [f"{OPTION} -w", "-w"]
    with pytest.raises(BuildError, match="undeclared_name") as raised:
        rt.build("\nkernel void k(global int *x) { x[0] = undeclared_name; }", "-w", "wrong.cl")
    assert ":2:" in str(raised.value)


def test_programs_are_built_lightly(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    header = pocl_header_of(rt)
    asked: list[str] = []

    class Noted:
        def program(self, text: str, options: str) -> tuple[str, str]:
            asked.append(text)
            return header.program(text, options)

    monkeypatch.setattr(pocl_header, "find_header", Noted)
    rt.programs._compiler.compile("kernel void noted(global int *x) { x[0] = max(x[1], 7); }", "", "noted", "key")
    assert len(asked) == 1
