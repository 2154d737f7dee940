"""Device families from names and version strings: generation, wave size, lanes and quirks.

Drivers report neither the GPU generation nor the wave size. Both are parsed from name and version strings, as in
TensorFlow Lite's GPU delegate.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...lazy_dataclass import dataclass

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
BYTE_PAIRS = "byte_pairs"  # Clang's builtins for vpmaddubsw and vpmaddwd (AVX2, AVX-512) build, found by a probe build
BYTE_FOURS = "byte_fours"  # the processor has vpdpbusd (VNNI), and assembly in OpenCL C builds
_LONG_LOOPS = 25  # first Mesa version whose llvmpipe ends no loop early


@dataclass(frozen=True)
class Family:
    """Properties of a device family.

    wave_size: work-items in lock step, 1 if unknown. full_wave: the wave size of kernels with few registers, if larger
    (Adreno). lanes: float32 multiply-adds per clock of one compute unit, as the driver counts units.
    """

    family: str = "generic"
    generation: str = ""
    wave_size: int = 1
    lanes: int = 32
    quirks: tuple[str, ...] = ()
    full_wave: int = 0


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
    return Family(family, "neon" if is_arm else wide, 1, 2 * max(float_width, 4), quirks)


def _adreno(match: re.Match[str], text: str) -> Family:
    models = re.findall(r"(?:adreno\D{0,6}|\bFD)([2-9]\d\d)\b", text, re.IGNORECASE)
    series = int(models[0][0]) if models else 0
    wave = 64 if series >= 6 else 32 if series >= 4 else 1
    lanes = 256 if series >= 6 else 64 if series >= 4 else 32
    quirks = (TIMER_OUTLIERS,) if 0 < series <= 3 else ()
    return Family("adreno", f"{series}xx" if series else "", wave, lanes, quirks, 2 * wave if series >= 4 else 0)


# Generation, wave size and multiply-adds per core and clock by model, from Arm's data sheets. Midgard has vector
# pipelines instead of waves.
_MALI: dict[str, tuple[str, int, int]] = {
    **dict.fromkeys(("T604", "T620", "T622", "T624", "T628", "T658", "T678"), ("midgard", 1, 8)),
    **dict.fromkeys(("T720", "T760", "T820", "T830", "T860", "T880"), ("midgard", 1, 10)),
    **dict.fromkeys(("G31", "G51"), ("bifrost1", 4, 8)),
    "G71": ("bifrost1", 4, 12),
    "G72": ("bifrost2", 4, 12),
    "G52": ("bifrost2", 8, 24),
    "G76": ("bifrost3", 8, 24),
    **dict.fromkeys(("G57", "G77", "G68", "G78"), ("valhall", 16, 32)),
    **dict.fromkeys(("G310", "G510", "G610", "G710", "G615", "G715"), ("valhall", 16, 64)),
    **dict.fromkeys(("G620", "G625", "G720", "G725", "G925"), ("fifth", 16, 128)),
}


def _mali(match: re.Match[str], text: str) -> Family:
    generation, wave, lanes = _MALI.get(match[1].upper(), ("midgard", 1, 8) if match[1][0] in "tT" else ("", 16, 32))
    return Family("mali", generation, wave, lanes, (FEW_EVENTS,))


def _powervr(match: re.Match[str], text: str) -> Family:
    for pattern, generation in (
        (r"\bD-Series|\bDXT", "d-series"),
        (r"\bB-Series|\bBX[A-Z]\b", "b-series"),
        (r"\bA-Series|\bAX[A-Z]\b", "a-series"),
        (r"\bGT8\d{3}", "furian"),
        (r"\bSGX", "sgx"),
    ):
        if re.search(pattern, text, re.IGNORECASE):
            return Family("powervr", generation, 32 if generation != "sgx" else 1, 64)
    # GE: one narrow cluster for entry-level phones; the other Rogue models count whole clusters.
    return Family("powervr", "rogue", 32, 16 if re.search(r"\bGE8", text) else 64)


def _apple(match: re.Match[str], text: str) -> Family:
    return Family("apple", match[1].lower(), 32, 128)


_NVIDIA = (
    (r"\bGB?2\d\d\b|\bB[12]00\b|RTX (?:PRO )?50\d\d|\bGB10\b", "blackwell", 128),
    (r"\bG?H[128]00\b|\bH20\b|\bGH200\b", "hopper", 128),
    (r"RTX 40\d\d|\bL4\b|\bL40|RTX \d{4} Ada|\bAD10\d", "ada", 128),
    (r"RTX 30\d\d|RTX A\d{4}|\bA(?:2|10|16|30|40|100|800)\b|Orin", "ampere", 128),
    (r"RTX 20\d\d|GTX 16\d\d|\bT4\b|\bT\d{3,4}\b|Quadro RTX|TITAN RTX", "turing", 64),
    (r"V100|TITAN V\b|Xavier", "volta", 64),
    (r"GTX 10\d\d|\bP(?:4|6|40|100|\d{4})\b|TITAN X[Pp]|GT 10\d\d|\bMX[1-3]\d\d\b", "pascal", 128),
    (r"GTX 9\d\d|GTX 75\d|\bM(?:4|6|10|40|60|\d{4})\b|9\d\dM\b", "maxwell", 128),
    (r"\bK\d{1,2}\b|GTX [67]\d\d|GT 7\d\d|Quadro K", "kepler", 192),
)


def _nvidia(match: re.Match[str], text: str) -> Family:
    for pattern, generation, lanes in _NVIDIA:
        if re.search(pattern, text):
            return Family("nvidia", generation, 32, lanes, (SLOW_SUB_BUFFERS,))
    return Family("nvidia", "", 32, 128, (SLOW_SUB_BUFFERS,))


_AMD_CODENAMES = r"tahiti|pitcairn|hawaii|bonaire|tonga|fiji|ellesmere|baffin|polaris|oland|vega"


def _amd(match: re.Match[str], text: str) -> Family:
    if gfx := re.search(r"\bgfx(\d+)([0-9a-f])([0-9a-f])\b", text):
        major, rest = int(gfx[1]), gfx[2] + gfx[3]
        if major >= 10:
            rdna = {10: "rdna2" if gfx[2] == "3" else "rdna1", 11: "rdna3", 12: "rdna4"}
            # AMD's own driver counts work-group processors: two compute units of 64 lanes.
            return Family("amd", rdna.get(major, ""), 32, 128)
        if major == 9:
            return Family("amd", "cdna" if rest in ("08", "0a", "40", "41", "42", "50") else "gcn5", 64, 64)
        return Family("amd", "gcn", 64, 64)
    if navi := re.search(r"navi ?(\d)", text, re.IGNORECASE):
        return Family("amd", f"rdna{navi[1]}", 32, 64)
    if radeon := re.search(r"RX (\d)\d{3}\b", text):
        generation = {"5": "rdna1", "6": "rdna2", "7": "rdna3", "9": "rdna4"}.get(radeon[1], "")
        return Family("amd", generation, 32, 64)
    gcn = re.search(_AMD_CODENAMES, text, re.IGNORECASE)
    return Family("amd", "gcn" if gcn else "", 64, 64)


_INTEL = (
    (r"Arc\D{1,8}B\d|Graphics \[0x64a0\]|Arc\D{1,8}1[34]0V|\bBMG\b|\bLNL\b", "xe2"),
    (r"Arc\D{1,8}A\d|\bDG2\b|Data Center GPU Flex", "xe-hpg"),
    (r"Data Center GPU Max", "xe-hpc"),
    (r"Iris\D{1,6}Xe|UHD\D{0,12}7[0-9]{2}|\bTGL\b|\bADL|\bRPL|\bDG1\b|Arc\D{1,10}Graphics", "xe-lp"),
    (r"Iris\D{1,6}Plus Graphics(?! 6\d\d)|\bICL\b|Gen11", "gen11"),
    (r"HD\D{0,12}[56]\d{2}\b|Plus Graphics 6\d\d|\bSKL|\bKBL|\bCFL|\bCML|\bAPL|\bGLK|Gen9", "gen9"),
    (r"HD\D{0,12}(?:5300|5500|5600|6000|P5700)|Iris\D{1,6}6[12]00|\bBDW|Gen8", "gen8"),
    (r"HD\D{0,12}(?:4\d{3}|5000|2500)|Iris\D{1,6}5[12]00|\bHSW|\bIVB|Gen7", "gen7"),
)


def _intel(match: re.Match[str], text: str) -> Family:
    for pattern, generation in _INTEL:
        if re.search(pattern, text):
            # A compute unit is one execution unit: 8 lanes, from Xe-HPG's vector engines on 8 or 16.
            return Family("intel", generation, 16, 16 if generation in ("xe2", "xe-hpc") else 8)
    return Family("intel", "", 16, 8)


# The first match wins: Apple's platform shows AMD and Intel GPUs under their own names, Mesa puts a vendor in front.
_PARSERS: tuple[tuple[str, Callable[[re.Match[str], str], Family]], ...] = (
    (r"adreno|\bFD[2-9]\d\d\b", _adreno),
    (r"(?:mali|immortalis)[- ]?([TG]\d{2,3})", _mali),
    (r"powervr|\bimg\b", _powervr),
    (r"apple (m\d+)", _apple),
    (r"nvidia|geforce|quadro|tesla", _nvidia),
    (r"\bgfx\d{3,4}|radeon|advanced micro devices|\bamd\b|" + _AMD_CODENAMES, _amd),
    (r"intel", _intel),
)
