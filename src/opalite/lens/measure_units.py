"""measure_units: rates of a device's other units: half arithmetic, dot products of bytes, matrix units."""

from __future__ import annotations

import numpy as np

from ..cl.runtime import Runtime
from ..errors import OpaliteError
from ..ir.device.device_family import PTX_MMA, PTX_WGMMA
from ..ir.dtype import DType
from ..kernels.integer.dot4_common import dot_defines
from ..kernels.kernel_sources import option_text, program_text, read_source
from ..run.report.measure_peaks import best_seconds

_ROUNDS = 2000
_CHAINS = 8
_WARP_MULTIPLY = 2 * 16 * 8 * 16
"""Operations of one mma.m16n8k16 instruction of a warp."""


def measure_units(rt: Runtime) -> dict[str, float]:
    """Operations per second of the units that the device has and kernels use, by kind; units that fail are left out."""
    found = {}
    for kind, measure in (("fp16", _halves), ("dot", _dots), ("matrix", _matrix)):
        try:
            rate = measure(rt)
        except OpaliteError:  # the driver refuses the program
            continue
        if rate:
            found[kind] = rate
    return found


def _halves(rt: Runtime) -> float:
    """Multiply-adds of halves; 0 if the device computes in floats."""
    if not rt.info.half_sums or rt.info.on_host:
        return 0.0
    body = "".join(f"half4 r{i} = (half4)(id + {i});" for i in range(_CHAINS))
    step = "".join(f"r{i} = r{i} * a + b;" for i in range(_CHAINS))
    total = "+".join(f"r{i}" for i in range(_CHAINS))
    text = (
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#pragma OPENCL FP_CONTRACT ON\n"
        "kernel void rate(global float *y, int rounds) { const int id = get_global_id(0); "
        f"{body} const half4 a = (half4)(0.5f * id), b = (half4)(1.0f / (1 + id)); "
        f"for (int i = 0; i < rounds; ++i) {{ {step} }} const half4 t = {total}; y[id] = t.x + t.y + t.z + t.w; }}"
    )
    return _rate(rt, text, "", 2.0 * 4 * _CHAINS)


def _dots(rt: Runtime) -> float:
    """Multiply-adds of bytes by 4-way dot products; 0 without, and where a CPU needs two instructions."""
    info = rt.info
    step = "".join(f"r{i} = DOT(r{i});" for i in range(_CHAINS))
    if info.dot_product:
        kind, width = "int", 1
        head = read_source("integer/dot4.cl") + "\n#define DOT(r) DOT4(a, b, r)\n"
        words = "const uint a = id * 77u, b = ~a;"
        options = option_text(dot_defines(info, DType.INT8, DType.INT8))
    elif info.byte_dots == "fours":
        kind, width = f"int{info.pack}", info.pack
        head = program_text("include/dot4_bytes.cl") + "\n#define DOT(r) dot_fours(r, a, b)\n"
        words = f"const uint{width} a = (uint{width})(id * 77u), b = ~a;"
        options = option_text({"PACK": width, "DOTS": 2})
    else:
        return 0.0
    body = "".join(f"{kind} r{i} = ({kind})(id + {i});" for i in range(_CHAINS))
    total = "+".join(f"r{i}" for i in range(_CHAINS))
    last = total if width == 1 else f"({total}).s0"
    text = (
        f"{head}kernel void rate(global float *y, int rounds) {{ const int id = get_global_id(0); {words} {body} "
        f"for (int i = 0; i < rounds; ++i) {{ {step} }} y[id] = {last}; }}"
    )
    return _rate(rt, text, options, 2.0 * 4 * width * _CHAINS)


def _matrix(rt: Runtime) -> float:
    """Multiply-adds of halves by matrix units; 0 without, and where warpgroups (wgmma) are faster."""
    info = rt.info
    if PTX_MMA not in info.quirks or PTX_WGMMA in info.quirks:
        return 0.0
    body = "".join(f"float r{i}[4] = {{id, {i}, 0, 0}};" for i in range(_CHAINS))
    step = "".join(f"MULTIPLY(r{i}, a, a, a, a, a, a);" for i in range(_CHAINS))
    total = "+".join(f"r{i}[0]" for i in range(_CHAINS))
    text = program_text("mma/mma_instructions.cl") + (
        "\nkernel void rate(global float *y, int rounds) { UNITS; const int id = get_global_id(0); "
        f"const uint a = id & 0x03ff03ff; {body} for (int i = 0; i < rounds; ++i) {{ {step} }} y[id] = {total}; }}"
    )
    return _rate(rt, text, option_text({"GROUP": 128}), _WARP_MULTIPLY * _CHAINS / 32)


def _rate(rt: Runtime, text: str, options: str, operations: float) -> float:
    """Operations per second of a kernel whose work-items do `operations` in each of its rounds."""
    info = rt.info
    group = 1 if info.on_host else min(128, info.max_work_group_size)
    items = info.compute_units * (8 if info.on_host else 16 * group)
    y = rt.allocate(4 * items)
    launch = rt.prepare(rt.build(text, options, "rate.cl"), "rate", [y, np.int32(_ROUNDS)], (items,), (group,), "rate")
    return operations * _ROUNDS * items / best_seconds(rt, launch)
