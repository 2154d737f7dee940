"""DeviceInfo of an OpenCL device: driver queries, vendor and family by name, and features found by probe builds."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyopencl as cl

from ...cache.cache_folder import usable_folder, write_json
from ...cache.cache_keys import digest
from ...ir.device.device_family import (
    ADDRESSES,
    ARM_DOT,
    BLOCK_LOADS,
    BYTE_FOURS,
    BYTE_PAIRS,
    FP16_UNLISTED,
    HALF_TYPES,
    HALF_VECTORS,
    PTX_DOT,
    PTX_MMA,
    PTX_WGMMA,
    QCOM_DOT,
    SLOW_DOT,
    SLOW_SUB_BUFFERS,
    SUB_GROUPS,
    UNLINKED_FMA,
    find_family,
)
from ...ir.device.device_info import SUB_GROUP_EXTENSIONS, DeviceInfo
from ...pocl import cpu_workarounds as pocl
from ..memory.device_pointers import supports_device_pointers
from ..programs.missing_builtins import PROBE
from .probe_dot_products import ARM_EXTENSIONS, QCOM_EXTENSION, is_khr_dot_slow, supports_arm_dot, supports_qcom_dot
from .probe_wgmma import supports_wgmma

_log = logging.getLogger(__name__)
T = TypeVar("T")

_FP16_PROBE = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel void trial(global half *x) { x[0] = x[0] * x[1] + (half)1; }
"""

# Used by kernels that accumulate in half: include/common.cl with ACC_HALF.
_HALF_VECTORS_PROBE = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel void trial(global half *x, global const float *f) {
    half4 v = fma(vload4(0, x), convert_half4(vload4(0, f)), (half4)1);
    v = select(v, (half4)0, convert_short4((int4)(0, 1, 2, 3) < (int)x[9]));
    const half16 w = vload16(0, x + 4);
    const float4 wide = convert_float4(v) + convert_float4(w.lo.hi);
    vstore4(max(v, convert_half4(wide)), 0, x);
    vstore8(w.lo, 0, x + 4);
}
"""

# Used with include/half_math.cl, which defines those functions: half arithmetic, and functions on half types.
_HALF_TYPES_PROBE = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half4 half4_at __attribute__((aligned(2)));
static inline half4 __attribute__((overloadable)) fma(half4 a, half4 b, half4 c) { return a * b + c; }
static inline half4 __attribute__((overloadable)) vload4(size_t i, const global half *p) {
    return *(const global half4_at *)(p + 4 * i);
}
static inline float4 __attribute__((overloadable)) convert_float4(half4 v) {
    return (float4)((float)v.x, (float)v.y, (float)v.z, (float)v.w);
}
static inline half4 __attribute__((overloadable)) select(half4 a, half4 b, short4 c) { return c ? b : a; }
kernel void trial(global half *x, global float4 *f, global int4 *n) {
    const half4 v = select((half4)0, fma(vload4(0, x), (half4)x[5], (half4)x[6]), convert_short4(n[0] < 3));
    const half16 w = *(global half16 *)x;
    f[0] = fma(f[1], convert_float4(v + w.hi.lo * (half)2), vload4(2, (global float *)f));
    *(global half4_at *)(x + 1) = v;
}
"""

_MMA_PROBE = """
kernel void trial(global float4 *x, global const uint *a) {
    float a0 = x[0].x, a1 = x[0].y, a2 = x[0].z, a3 = x[0].w;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(a0), "+f"(a1), "+f"(a2), "+f"(a3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]));
    x[0] = (float4)(a0, a1, a2, a3);
}
"""

_DOT_PROBE = """
kernel void trial(global int *x, global const uint *a) {
    int sum;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a[0]), "r"(a[1]), "r"(x[0]));
    x[0] = sum;
}
"""

# x86 dot products of bytes: pairs by Clang builtins, fours (VNNI) by assembly, since PoCL compiles for the processor of
# its kernel library. The system's CPU flags tell whether the processor has the instruction.
_BYTE_PAIRS_PROBE = """
typedef char bytes __attribute__((ext_vector_type(WIDTH / 8)));
typedef short pairs __attribute__((ext_vector_type(WIDTH / 16)));
typedef int lanes __attribute__((ext_vector_type(WIDTH / 32)));
kernel void trial(global lanes *x, global const bytes *a) {
    x[0] = __builtin_ia32_pmaddwdWIDTH(__builtin_ia32_pmaddubswWIDTH(a[0], a[1]), (pairs)(short)1);
}
"""
_BYTE_FOURS_PROBE = """
typedef int lanes __attribute__((ext_vector_type(WIDTH / 32)));
kernel void trial(global lanes *x, global const lanes *a) {
    lanes s = x[0];
    __asm__("FOURS %2, %1, %0" : "+REGISTERS"(s) : "REGISTERS"(a[0]), "REGISTERS"(a[1]));
    x[0] = s;
}
"""

# By CPU generation: vector bits, CPU flag, VNNI instruction, register constraint.
_BYTE_DOTS = {"avx2": ("256", "avx_vnni", "%{vex%} vpdpbusd", "x"), "avx512": ("512", "avx512_vnni", "vpdpbusd", "v")}

_SUB_GROUPS_PROBE = """
#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
kernel void trial(global float *x) {
    const float sum = sub_group_reduce_add(x[get_global_id(0)]), most = sub_group_reduce_max(sum);
    if (get_sub_group_local_id() == 0) x[get_sub_group_id()] = most + get_num_sub_groups();
}
"""


_WAVE = "wave"  # in the file of probe results
_WAVE_PROBE = "kernel void trial(global float *x) { x[get_global_id(0)] *= 2; }"

_BLOCK_LOADS_PROBE = """
kernel void trial(global float4 *x, global const float *a) {
    const float2 two = as_float2(intel_sub_group_block_read2((global const uint *)a));
    const float8 eight = as_float8(intel_sub_group_block_read8((global const uint *)a));
    const uint at = get_sub_group_id() * get_max_sub_group_size() * 4;
    x[get_global_id(0)] = as_float4(intel_sub_group_block_read4((global const uint *)a + at)) + two.xyxy + eight.lo;
}
"""


def describe(device: cl.Device) -> DeviceInfo:
    """DeviceInfo by driver queries; a query that fails yields the default. fp16: by the extension list only."""
    default = DeviceInfo()
    query = _Query(device)
    extensions = tuple(query.text("extensions").split())
    bits = query(lambda d: d.type, 0)
    kind = "cpu" if bits & cl.device_type.CPU else "gpu" if bits & cl.device_type.GPU else "accelerator"
    name, vendor, version = query.text("name"), query.text("vendor"), query.text("version")
    platform = str(query(lambda d: d.platform.name, "")).strip()
    images = bool(query(lambda d: d.image_support, False))
    width = max(1, query(lambda d: d.native_vector_width_float, 1))
    driver = query.text("driver_version")
    family = find_family(name, vendor, platform, version, kind, width, driver)
    sizes = [*query(lambda d: list(d.max_work_item_sizes), list(default.max_work_item_sizes)), 1, 1, 1]
    info = DeviceInfo(
        name=name,
        vendor=vendor,
        platform=platform,
        version=version,
        driver=driver,
        kind=kind,
        family=family.family,
        generation=family.generation,
        wave_size=query(lambda d: d.warp_size_nv, 0) or query(lambda d: d.wavefront_width_amd, 0) or family.wave_size,
        full_wave=family.full_wave,
        max_waves=family.max_waves,
        register_bytes=family.register_bytes,
        lanes=family.lanes,
        quirks=family.quirks,
        compute_units=query(lambda d: d.max_compute_units, 1),
        clock_mhz=query(lambda d: d.max_clock_frequency, 0),
        max_work_group_size=query(lambda d: d.max_work_group_size, default.max_work_group_size),
        max_work_item_sizes=(sizes[0], sizes[1], sizes[2]),
        local_mem=query(lambda d: d.local_mem_size, default.local_mem),
        local_mem_dedicated=query(lambda d: d.local_mem_type == cl.device_local_mem_type.LOCAL, True),
        global_mem=query(lambda d: d.global_mem_size, default.global_mem),
        max_alloc=query(lambda d: d.max_mem_alloc_size, default.max_alloc),
        base_align=max(1, query(lambda d: d.mem_base_addr_align, 8 * default.base_align) // 8),
        image_support=images,
        image2d_max=query(lambda d: (d.image2d_max_width, d.image2d_max_height), (0, 0)) if images else (0, 0),
        image_buffer_max=query(lambda d: d.image_max_buffer_size, 0) if images else 0,
        cache_bytes=query(lambda d: d.global_mem_cache_size, 0),
        native_float_width=width,
        fp16="cl_khr_fp16" in extensions,
        fp64="cl_khr_fp64" in extensions or bool(query(lambda d: d.double_fp_config, 0)),
        unified_memory=bool(query(lambda d: d.host_unified_memory, False)),
        extensions=extensions,
    )
    if not info.lacks_wave:
        return info
    # OpenCL 3.0 tells it; others are asked by a probe build.
    return replace(info, wave_size=_plausible_wave(query(lambda d: d.preferred_work_group_size_multiple, 1)))


def location(device: cl.Device) -> str:
    """PCI address of the device, '' if the driver does not report it. Gives equal devices a stable order."""
    query = _Query(device)
    domain = query(lambda d: d.pci_domain_id_nv, -1)
    if domain >= 0:
        return f"{domain:04x}:{query(lambda d: d.pci_bus_id_nv, 0):02x}:{query(lambda d: d.pci_slot_id_nv, 0):02x}"
    return str(query(lambda d: f"{d.topology_amd.bus:02x}:{d.topology_amd.device:02x}.{d.topology_amd.function}", ""))


def with_probed_features(device: cl.Device, info: DeviceInfo) -> DeviceInfo:
    """Add features found by probe builds, cached on disk, to `info`.

    GPUs: unlisted half arithmetic; with a PTX compiler, matrix units, byte dot products and wgmma (Hopper) by inline
    PTX; with sub-groups, reductions and block loads; with slow sub-buffers, arguments by address. llvmpipe: whether fma
    can be linked. CPUs: byte dot products. PoCL supports byte dot products and is not probed, since a build costs each
    process 0.25 s.
    """
    if info.family == "pocl" and info.is_cpu:
        return replace(info, quirks=(*info.quirks, *(q for q in _cpu_probes(info) if q not in info.quirks)))
    probes = _gpu_probes(info) if info.kind == "gpu" else _cpu_probes(info) if info.is_cpu else {}
    if info.family == "llvmpipe":
        probes = {**probes, UNLINKED_FMA: PROBE}
    if not (probes or info.lacks_wave):
        return info
    folder = usable_folder()
    known = folder / "facts.json" if folder is not None else None
    key = fingerprint(info)
    facts = _read_facts(known)
    found = facts.get(key, {})
    missing = [quirk for quirk in probes if quirk not in found]
    if missing or (info.lacks_wave and _WAVE not in found):
        facts[key] = {
            "name": info.name,
            **found,
            **{quirk: _has_feature(device, info, quirk, probes[quirk]) for quirk in missing},
            **({_WAVE: _kernel_wave(device)} if info.lacks_wave else {}),
        }
        if known is not None:
            write_json(known, facts)
    quirks = tuple(quirk for quirk in probes if facts[key].get(quirk))
    # Devices with arguments by address need no sub-buffers.
    own = tuple(q for q in info.quirks if q != SLOW_SUB_BUFFERS or ADDRESSES not in quirks)
    wave = _plausible_wave(facts[key].get(_WAVE)) if info.lacks_wave else info.wave_size
    return replace(info, wave_size=wave, fp16=info.fp16 or FP16_UNLISTED in quirks, quirks=(*own, *quirks))


def _gpu_probes(info: DeviceInfo) -> dict[str, str]:
    """Probe programs by quirk; '' for probes that run a kernel."""
    probes: dict[str, str] = {}
    if not info.fp16:
        probes |= {FP16_UNLISTED: _FP16_PROBE, HALF_VECTORS: _HALF_VECTORS_PROBE, HALF_TYPES: _HALF_TYPES_PROBE}
    if any(e.startswith("cl_nv_") for e in info.extensions):
        probes |= {PTX_MMA: _MMA_PROBE, PTX_DOT: _DOT_PROBE}
        if info.generation == "hopper":
            probes[PTX_WGMMA] = ""
    if any(info.has(e) for e in SUB_GROUP_EXTENSIONS):
        probes[SUB_GROUPS] = _SUB_GROUPS_PROBE
    if info.has("cl_intel_subgroups"):
        probes[BLOCK_LOADS] = _BLOCK_LOADS_PROBE
    if SLOW_SUB_BUFFERS in info.quirks:
        probes[ADDRESSES] = ""
    if any(info.has(e) for e in ARM_EXTENSIONS):
        probes[ARM_DOT] = ""
    if info.has(QCOM_EXTENSION):
        probes[QCOM_DOT] = ""
    if info.has("cl_khr_integer_dot_product"):
        probes[SLOW_DOT] = ""
    return probes


def _cpu_probes(info: DeviceInfo) -> dict[str, str]:
    """Probe programs by quirk; assembly only if the processor has the instruction."""
    if info.generation not in _BYTE_DOTS:
        return {}
    width, flag, fours, registers = _BYTE_DOTS[info.generation]
    probes = {BYTE_PAIRS: _BYTE_PAIRS_PROBE.replace("WIDTH", width)}
    if info.assembly and flag in pocl.cpu_flags():
        filled = _BYTE_FOURS_PROBE.replace("WIDTH", width).replace("REGISTERS", registers)
        probes[BYTE_FOURS] = filled.replace("FOURS", fours)
    return probes


def _plausible_wave(reported: Any) -> int:
    """The wave size that a driver reports: a power of two up to 128, else 1."""
    is_wave = isinstance(reported, int) and 1 <= reported <= 128 and reported & (reported - 1) == 0
    return int(reported) if is_wave else 1


def _kernel_wave(device: cl.Device) -> int:
    """The work-group size multiple that the driver prefers for a small kernel; 1 if it does not say."""
    try:
        with _muted():
            program = cl._Program(cl.Context([device]), _WAVE_PROBE)
            program._build(b"", [device])
            kernel = cl.Kernel(program, "trial")
        info = cl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE
        return int(kernel.get_work_group_info(info, device))
    except (cl.Error, TypeError, ValueError):
        return 1


def fingerprint(info: DeviceInfo) -> str:
    """Key of all properties of device and driver that affect compiled programs."""
    # PoCL uses one name for several processors.
    host = pocl.host_cpu_name() if info.on_host else ""
    return digest(info.platform, info.vendor, info.name, info.version, info.driver, host)


class _Query:
    """Device queries that return a default if a broken driver fails."""

    def __init__(self, device: cl.Device) -> None:
        self._device = device

    def __call__(self, read: Callable[[Any], Any], default: T) -> T:
        try:
            found: T = read(self._device)
        except (cl.Error, AttributeError, UnicodeDecodeError, ValueError, IndexError):
            return default
        return found

    def text(self, name: str) -> str:
        """A string query, without the padding of some drivers."""
        return " ".join(str(self(lambda d: getattr(d, name), "")).replace("\0", " ").split())


def _has_feature(device: cl.Device, info: DeviceInfo, quirk: str, source: str) -> bool:
    asks: dict[str, Callable[[], bool]] = {
        PTX_WGMMA: lambda: supports_wgmma(device),
        ADDRESSES: lambda: supports_device_pointers(device),
        ARM_DOT: lambda: supports_arm_dot(device, info),
        QCOM_DOT: lambda: supports_qcom_dot(device),
        SLOW_DOT: lambda: is_khr_dot_slow(device),
    }
    if quirk in asks:
        with _muted():
            return asks[quirk]()
    return _builds(device, source) is not (quirk == UNLINKED_FMA)


@cache
def _builds(device: cl.Device, source: str) -> bool:
    try:
        with _muted():
            program = cl._Program(cl.Context([device]), source)
            program._build(b"", [device])
    except cl.Error:
        return False
    return True


@contextmanager
def _muted() -> Iterator[None]:
    """Discard stderr of libraries: NVIDIA's compiler prints the errors of failed probes there."""
    try:
        folder = os.dup(2)
    except OSError:  # closed
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(folder, 2)
        os.close(folder)
        os.close(null)


def _read_facts(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        _log.warning("%s cannot be read (%s): devices are probed again", path, e)
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, dict)}
