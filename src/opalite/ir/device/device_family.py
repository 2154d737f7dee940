"""Device families from names and version strings: generation, wave size, lanes and quirks.

Drivers report neither the GPU generation nor the wave size. Both are parsed from name and version strings, as in
TensorFlow Lite's GPU delegate.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...lazy_dataclass import dataclass
from .gpu_models import ADRENO_REGISTERS, ADRENO_SERIES, AMD, AMD_GFX, INTEL, MALI, MALI_CODENAMES, NVIDIA, POWERVR

FAMILIES = ["pocl", "adreno", "mali", "powervr", "intel", "amd", "nvidia", "apple", "broadcom", "llvmpipe", "generic"]
"""Every value of `Family.family`."""

TIMER_OUTLIERS = "timer_outliers"  # profiling events now and then report absurd times (Adreno 3xx)
FEW_EVENTS = "few_events"  # many outstanding events slow the driver: wait for every eighth (Mali)
FP16_UNLISTED = "fp16_unlisted"  # half arithmetic builds though cl_khr_fp16 is not listed
HALF_VECTORS = "half_vectors"  # vectors of halves and functions on them build, too, though it is not listed
HALF_TYPES = "half_types"  # vectors of halves and their arithmetic build, but not OpenCL C's functions on them
SLOW_SUB_BUFFERS = "slow_sub_buffers"  # host time of a launch: 15 µs on sub-buffers, 5 µs on whole buffers (NVIDIA)
ADDRESSES = "addresses"  # kernel arguments may be device addresses (cl/memory/device_pointers.py), found by a probe run
PLAIN_BUILDS = "plain_builds"  # the optimizer's output is rejected or miscomputes: build without it (Oclgrind)
NO_ASSEMBLY = "no_assembly"  # inline assembly in a kernel ends the process that compiles it (PoCL 5, 6)
SERIAL_BUILDS = "serial_builds"  # two threads that build programs at once end the process (Oclgrind)
FRAGILE_COMPILER = "fragile_compiler"  # some programs end the process that compiles them (PoCL 5 and 6)
SOFTWARE = "software"  # software rendering at 1 % of the CPU's speed (llvmpipe); a warning is printed
# Private variables of work-items are sometimes shared across barriers (PoCL 5, 6): kernels/node_launches.py
SHARED_VALUES = "shared_values"
SHORT_LOOPS = "short_loops"  # loops end after 65,535 iterations (llvmpipe of Mesa 22.3): layout/longest_kernel_loop.py
SHALLOW_FLOW = "shallow_flow"  # 80 nested branches, such as a switch's cases, crash or do nothing (llvmpipe)
# Programs with fma, sin or cos do not build (Mesa 26 with LLVM's libclc), found by a probe build
UNLINKED_FMA = "unlinked_fma"
# Prefix of a kernel's name: its program failed to compile here (run/model/background/graph_compiler.py)
UNBUILT = "unbuilt:"
PTX_MMA = "ptx_mma"  # OpenCL C accepts inline PTX with mma.sync (tensor cores), found by a probe build
SUB_GROUPS = "sub_groups"  # sub-group reductions build, found by a probe build if extensions list them
BLOCK_LOADS = "block_loads"  # intel_sub_group_block_read builds, found by a probe build
PTX_WGMMA = "ptx_wgmma"  # PTX programs with wgmma and large local memory run (Hopper), found by a probe run
PTX_DOT = "ptx_dot"  # OpenCL C accepts inline PTX with dp4a (4-way int8 dot product), found by a probe build
ARM_DOT = "arm_dot"  # cl_arm_integer_dot_product computes right, found by a probe run
QCOM_DOT = "qcom_dot"  # cl_qcom_dot_product8 multiplies signed by unsigned bytes, found by a probe run
SLOW_DOT = "slow_dot"  # cl_khr_integer_dot_product is listed, but the driver says that no instruction computes it
BYTE_PAIRS = "byte_pairs"  # Clang's builtins for vpmaddubsw and vpmaddwd (AVX2, AVX-512) build, found by a probe build
BYTE_FOURS = "byte_fours"  # the processor has vpdpbusd (VNNI), and assembly in OpenCL C builds
_LONG_LOOPS = 25  # first Mesa version whose llvmpipe ends no loop early


@dataclass(frozen=True)
class Family:
    """Properties of a device family.

    wave_size: work-items in lock step, 1 if unknown. full_wave: the wave size of kernels with few registers, if larger
    (Adreno). max_waves, register_bytes: of a compute unit, 0 if unknown. lanes: float32 multiply-adds per clock of one
    compute unit, as the driver counts units.
    """

    family: str = "generic"
    generation: str = ""
    wave_size: int = 1
    lanes: int = 32
    quirks: tuple[str, ...] = ()
    full_wave: int = 0
    max_waves: int = 0
    register_bytes: int = 0


def find_family(
    name: str,
    vendor: str = "",
    platform: str = "",
    version: str = "",
    kind: str = "gpu",
    float_width: int = 1,
    driver: str = "",
) -> Family:
    """Family of a device from its OpenCL strings. float_width: native vector width of float, for CPUs."""
    if lanes := re.match(r"llvmpipe \(.*\b(\d+) bits\)", name):
        # Mesa's software driver runs work-items as vector lanes, as GPUs do.
        width = int(lanes[1]) // 32
        major = re.match(r"\d+", driver)
        is_old = major is not None and int(major[0]) < _LONG_LOOPS
        quirks = (SOFTWARE, SHALLOW_FLOW, SHORT_LOOPS) if is_old else (SOFTWARE, SHALLOW_FLOW)
        return Family("llvmpipe", "", width, width, quirks)
    if name.startswith("SwiftShader"):
        # Google's software driver computes four work-items in a vector. Source: its SIMD::Width.
        return Family("generic", "", 4, 4, (SOFTWARE,))
    if kind == "accelerator":
        # Neither Intel's FPGA emulation nor Qualcomm's signal processors are the vendor's GPU.
        return Family()
    if kind == "cpu":
        return _cpu(name, platform, version, float_width, driver)
    # Adreno 5xx and later put the model into the version only ("OpenCL 2.0 Adreno(TM) 640").
    text = f"{name} | {version} | {vendor}"
    for pattern, parse in _PARSERS:
        if match := re.search(pattern, text, re.IGNORECASE):
            return parse(match, text)
    return Family()


def _cpu(name: str, platform: str, version: str, float_width: int, driver: str) -> Family:
    is_arm = re.search(r"aarch64|arm|cortex|neoverse|apple", f"{name} {version}", re.IGNORECASE)
    is_riscv = re.search(r"riscv", f"{name} {version}", re.IGNORECASE)
    wide = {16: "avx512", 8: "avx2"}.get(float_width, "sse")
    family = "pocl" if platform == "Portable Computing Language" else "generic"
    for vendor in ("intel", "apple"):
        if family == "generic" and vendor in f"{name} {platform}".lower():
            family = vendor
    quirks: tuple[str, ...] = (PLAIN_BUILDS, SERIAL_BUILDS) if "oclgrind" in platform.lower() else ()
    if family == "pocl" and (major := re.match(r"\d+", driver)) and int(major[0]) >= 4:
        # Seen with 5.0 and 6.0, not with 3.1; 4.0 is untested and assumed to be affected.
        quirks = (FRAGILE_COMPILER, SHARED_VALUES, NO_ASSEMBLY)
    # Two multiply-add units a core, each as wide as a vector register.
    return Family(family, "neon" if is_arm else "rvv" if is_riscv else wide, 1, 2 * max(float_width, 4), quirks)


def _adreno(match: re.Match[str], text: str) -> Family:
    # "642L" and "740v3" are a 642 and a 740.
    found = re.search(r"(?:adreno\D{0,6}|\bFD)([2-9]\d\d)(?!\d)|adreno\S*\s+(X\d|8cx|7c)\b", text, re.IGNORECASE)
    model = (found[1] or found[2]).upper() if found else ""
    if model:
        series = ADRENO_SERIES.get(model) or (int(model[0]) if model.isdigit() else 7)
    else:
        # Without a model, the OpenCL version bounds the series: 3.0 from 6xx on, 2.0 from 5xx on (4xx has the same
        # waves).
        version = re.search(r"OpenCL ([23])\.", text)
        series = {"3": 6, "2": 5}[version[1]] if version else 0
    wave = 64 if series >= 6 else 32 if series >= 4 else 1
    lanes = 256 if series >= 6 else 64 if series >= 4 else 32
    quirks = (TIMER_OUTLIERS,) if 0 < series <= 3 else ()
    generation = f"{series}xx" if model else ""
    waves, registers = ADRENO_REGISTERS.get(model, ADRENO_REGISTERS.get(generation, (0, 0)))
    full = 2 * wave if series >= 4 else 0
    return Family("adreno", generation, wave, lanes, quirks, full, waves, registers)


def _mali(match: re.Match[str], text: str) -> Family:
    model = re.search(r"(?:mali|immortalis)[- ]?(G1-(?:Ultra|Premium|Pro)|[TG]\d{2,3})", text, re.IGNORECASE)
    if model:
        name = model[1].upper()
    else:
        code = re.search(r"\bmali[- ]?([TL][A-Z]{2}X)\b", text, re.IGNORECASE)
        name = MALI_CODENAMES.get(code[1].upper(), "") if code else ""
    # Models that are not in the table are newer than it, but for Midgard's.
    generation, wave, lanes = MALI.get(name, ("midgard", 1, 8) if name.startswith("T") else ("", 16, 64))
    return Family("mali", generation, wave, lanes, (FEW_EVENTS,))


def _powervr(match: re.Match[str], text: str) -> Family:
    for pattern, generation in POWERVR:
        if re.search(pattern, text, re.IGNORECASE):
            return Family("powervr", generation, 32 if generation != "sgx" else 1, 64)
    # GE: one narrow cluster for entry-level phones; the other Rogue models count whole clusters.
    return Family("powervr", "rogue", 32, 16 if re.search(r"\bGE\d", text) else 64)


def _apple(match: re.Match[str], text: str) -> Family:
    return Family("apple", match[1].lower(), 32, 128)


def _broadcom(match: re.Match[str], text: str) -> Family:
    # Raspberry Pi: a QPU takes 16 work-items through four lanes. Source: Broadcom's VideoCore IV architecture guide.
    version = re.search(r"V3D (\d)", text)
    return Family("broadcom", f"videocore{6 if version[1] == '4' else 7}" if version else "videocore4", 16, 4)


def _nvidia(match: re.Match[str], text: str) -> Family:
    for pattern, generation, lanes in NVIDIA:
        if re.search(pattern, text):
            return Family("nvidia", generation, 32, lanes, (SLOW_SUB_BUFFERS,))
    return Family("nvidia", "", 32, 128, (SLOW_SUB_BUFFERS,))


def _amd(match: re.Match[str], text: str) -> Family:
    # AMD's own driver counts work-group processors from RDNA on: two compute units of 64 lanes. Mesa counts the units.
    is_mesa = re.search(r"radeonsi|mesa|\bDRM\b|xclipse", text, re.IGNORECASE)
    if gfx := re.search(r"\bgfx(\d+[0-9a-f]{2})(?![0-9a-f])", text):
        for begin, generation, wave in AMD_GFX:
            if gfx[1].startswith(begin):
                return Family("amd", generation, wave, 128 if wave == 32 and not is_mesa else 64)
        newer = len(gfx[1]) > 3
        return Family("amd", "", 32 if newer else 64, 128 if newer and not is_mesa else 64)
    for pattern, generation, wave in AMD:
        if re.search(pattern, text, re.IGNORECASE):
            return Family("amd", generation, wave, 64)
    return Family("amd", "", 64, 64)


def _intel(match: re.Match[str], text: str) -> Family:
    for pattern, generation, lanes in INTEL:
        if re.search(pattern, text):
            return Family("intel", generation, 16, lanes)
    return Family("intel", "", 16, 8)


# The first match wins: Apple's platform shows AMD and Intel GPUs under their own names, Mesa puts a vendor in front.
_PARSERS: tuple[tuple[str, Callable[[re.Match[str], str], Family]], ...] = (
    (r"adreno|\bFD[2-9]\d\d\b|\bqualcomm\b", _adreno),
    (r"\b(?:mali|immortalis)\b|\| arm$", _mali),
    (r"powervr|\bimg\b|\bimagination\b", _powervr),
    (r"apple (m\d+)", _apple),
    (r"\bV3D \d|videocore", _broadcom),
    (r"nvidia|geforce|quadro|tesla", _nvidia),
    (r"\bgfx\d{3,4}|radeon|advanced micro devices|\bamd\b|xclipse|" + AMD[1][0], _amd),
    (r"intel", _intel),
)
