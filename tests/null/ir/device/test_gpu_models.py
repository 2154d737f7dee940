"""Names of today's devices: family, generation, wave, lanes of a unit, and quirks of each.

Names as clinfo prints them in public reports (llama.cpp, hashcat, Mesa, clvk, PoCL, Intel's compute runtime), or as
the driver's own table has them. Where no table knows a name, the wave is 1, so that the device is asked.
"""

from __future__ import annotations

import pytest

from opalite.ir.device.device_family import (
    FEW_EVENTS,
    FRAGILE_COMPILER,
    NO_ASSEMBLY,
    PLAIN_BUILDS,
    SERIAL_BUILDS,
    SHALLOW_FLOW,
    SHARED_VALUES,
    SLOW_SUB_BUFFERS,
    SOFTWARE,
    Family,
    find_family,
)
from opalite.ir.device.device_info import DeviceInfo

ADRENO, INTEL, AMD, NVIDIA = "QUALCOMM", "Intel(R) Corporation", "Advanced Micro Devices, Inc.", "NVIDIA Corporation"
IMG = "Imagination Technologies"
POCL = "Portable Computing Language"
CLVK = "OpenCL 3.0 CLVK on Vulkan v1.3.274 driver 104865799"
FEW, SUB = (FEW_EVENTS,), (SLOW_SUB_BUFFERS,)
GPUS = [
    # name, vendor, version, family, generation, wave, lanes, quirks
    ("QUALCOMM Adreno(TM)", ADRENO, "OpenCL 2.0 Adreno(TM) 642L", "adreno", "6xx", 64, 256, ()),
    ("QUALCOMM Adreno(TM)", ADRENO, "OpenCL 3.0 Adreno(TM) 643v2", "adreno", "6xx", 64, 256, ()),
    ("QUALCOMM Adreno(TM)", ADRENO, "OpenCL 3.0 Adreno(TM) 702", "adreno", "6xx", 64, 256, ()),
    ("QUALCOMM Adreno(TM)", ADRENO, "OpenCL 3.0 Adreno(TM) 725", "adreno", "7xx", 64, 256, ()),
    ("QUALCOMM Adreno(TM)", ADRENO, "OpenCL 3.0 Adreno(TM) 825", "adreno", "8xx", 64, 256, ()),
    ("QUALCOMM Adreno(TM)", ADRENO, "OpenCL 2.0 Adreno(TM) 509", "adreno", "5xx", 32, 64, ()),
    ("Qualcomm(R) Adreno(TM) X1-45 GPU", ADRENO, "OpenCL 3.0 QUALCOMM build", "adreno", "7xx", 64, 256, ()),
    ("Qualcomm(R) Adreno(TM) X2-85 GPU", ADRENO, "OpenCL 3.0 QUALCOMM build", "adreno", "8xx", 64, 256, ()),
    ("Qualcomm(R) Adreno(TM) 690 GPU", ADRENO, "OpenCL 3.0 QUALCOMM build", "adreno", "6xx", 64, 256, ()),
    ("Qualcomm(R) Adreno(TM) 7c+ Gen 3", ADRENO, "OpenCL 3.0", "adreno", "6xx", 64, 256, ()),
    ("Turnip Adreno (TM) 740v3", "Qualcomm", CLVK, "adreno", "7xx", 64, 256, ()),
    ("FD702", "freedreno", "OpenCL 3.0", "adreno", "6xx", 64, 256, ()),
    ("Mali-G52 MC2 r1p0", "ARM", "OpenCL 3.0", "mali", "bifrost2", 8, 24, FEW),
    ("Mali-G57 MC2 r0p1", "ARM", "OpenCL 3.0", "mali", "valhall", 16, 32, FEW),
    ("Mali-G68 MC4", "ARM", "OpenCL 3.0", "mali", "valhall", 16, 32, FEW),
    ("Mali-G78AE r0p1", "ARM", "OpenCL 3.0", "mali", "valhall", 16, 32, FEW),
    ("Mali-G77 MC9 r0p1", "ARM", "OpenCL 2.1", "mali", "valhall", 16, 32, FEW),
    ("Mali-G310 V2 r0p0", "ARM", "OpenCL 3.0", "mali", "valhall", 16, 64, FEW),
    ("Mali-G510 r0p0", "ARM", "OpenCL 3.0", "mali", "valhall", 16, 64, FEW),
    ("Mali-G625 MC2 r0p0", "ARM", "OpenCL 3.0", "mali", "fifth", 16, 128, FEW),
    ("Mali-G925-Immortalis MC12 r0p1", "ARM", "OpenCL 3.0", "mali", "fifth", 16, 128, FEW),
    ("Mali-TGOx r0p0", "ARM", "OpenCL 2.0", "mali", "bifrost2", 8, 24, FEW),
    ("Mali-T760 (Panfrost)", "Mesa", "OpenCL 3.0", "mali", "midgard", 1, 10, FEW),
    ("Virtio-GPU Venus (Mali-G57)", "ARM", CLVK, "mali", "valhall", 16, 32, FEW),
    ("ARM Platform", "ARM", "OpenCL 3.0 v1.r32p1", "mali", "", 16, 64, FEW),
    ("PowerVR B-Series BXM-4-64", IMG, "OpenCL 3.0", "powervr", "b-series", 32, 64, ()),
    ("PowerVR B-Series BXS-4-64 MC1", "Mesa", CLVK, "powervr", "b-series", 32, 64, ()),
    ("PowerVR DXT-48-1536", IMG, "OpenCL 3.0", "powervr", "d-series", 32, 64, ()),
    ("PowerVR Rogue AXE-1-16M", IMG, "OpenCL 3.0", "powervr", "a-series", 32, 64, ()),
    ("PowerVR Rogue GE9215", IMG, "OpenCL 1.2", "powervr", "rogue", 32, 16, ()),
    ("PowerVR Rogue GM9446", IMG, "OpenCL 1.2", "powervr", "rogue", 32, 64, ()),
    ("Samsung Xclipse 530", "Samsung Electronics", "OpenCL 3.0", "amd", "rdna2", 32, 64, ()),
    ("Samsung Xclipse 540", "Samsung Electronics", "OpenCL 3.0", "amd", "rdna3", 32, 64, ()),
    ("Samsung Xclipse 940", "Samsung Electronics", "OpenCL 3.0", "amd", "rdna3", 32, 64, ()),
    ("Samsung Xclipse 960", "Samsung Electronics", "OpenCL 3.0", "amd", "", 32, 64, ()),
    ("Intel(R) Graphics [0x64a0]", INTEL, "OpenCL 3.0 NEO", "intel", "xe2", 16, 16, ()),
    ("Intel(R) Graphics [0xe223]", INTEL, "OpenCL 3.0 NEO", "intel", "xe2", 16, 16, ()),
    ("Intel(R) Graphics [0xb080]", INTEL, "OpenCL 3.0 NEO", "intel", "xe3", 16, 16, ()),
    ("Intel(R) Graphics [0x7d67]", INTEL, "OpenCL 3.0 NEO", "intel", "xe-lpg", 16, 8, ()),
    ("Intel(R) Graphics [0x46d1]", INTEL, "OpenCL 3.0 NEO", "intel", "xe-lp", 16, 8, ()),
    ("Intel(R) Graphics [0x9a49]", INTEL, "OpenCL 3.0 NEO", "intel", "xe-lp", 16, 8, ()),
    ("Intel(R) Graphics [0x4905]", INTEL, "OpenCL 3.0 NEO", "intel", "xe-lp", 16, 8, ()),
    ("Intel(R) Graphics [0x56a0]", INTEL, "OpenCL 3.0 NEO", "intel", "xe-hpg", 16, 8, ()),
    ("Intel(R) Graphics [0x0bd5]", INTEL, "OpenCL 3.0 NEO", "intel", "xe-hpc", 16, 16, ()),
    ("Intel(R) Graphics [0x5917]", INTEL, "OpenCL 3.0 NEO", "intel", "gen9", 16, 8, ()),
    ("Intel(R) UHD Graphics P630 [0x3e9a]", INTEL, "OpenCL 3.0 NEO", "intel", "gen9", 16, 8, ()),
    ("Intel(R) Arc(TM) Pro 140T GPU (16GB)", INTEL, "OpenCL 3.0 NEO", "intel", "xe-lpg", 16, 8, ()),
    ("Intel(R) Arc(TM) 130V GPU (8GB)", INTEL, "OpenCL 3.0 NEO", "intel", "xe2", 16, 16, ()),
    ("Intel(R) Arc(TM) A370M Graphics", INTEL, "OpenCL 3.0 NEO", "intel", "xe-hpg", 16, 8, ()),
    ("Intel(R) UHD Graphics for 11th Gen Intel(R) Processors", INTEL, "OpenCL 3.0", "intel", "xe-lp", 16, 8, ()),
    ("Mesa Intel(R) Graphics (BMG G21)", "Intel", "OpenCL 3.0", "intel", "xe2", 16, 16, ()),
    ("Mesa Intel(R) Arc(tm) Graphics (MTL)", "Intel", "OpenCL 3.0", "intel", "xe-lpg", 16, 8, ()),
    ("Intel(R) Iris(TM) Pro Graphics 6200", INTEL, "OpenCL 2.0", "intel", "gen8", 16, 8, ()),
    ("Intel(R) Iris(TM) Graphics 550", INTEL, "OpenCL 2.1", "intel", "gen9", 16, 8, ()),
    ("Intel(R) HD Graphics Haswell GT2 Mobile", "Intel", "OpenCL 1.2 beignet 1.3", "intel", "gen7", 16, 8, ()),
    ("Intel(R) HD Graphics Skylake ULT GT2", "Intel", "OpenCL 2.0 beignet 1.3", "intel", "gen9", 16, 8, ()),
    ("gfx1200", AMD, "OpenCL 2.1 AMD-APP (3649.0)", "amd", "rdna4", 32, 128, ()),
    ("gfx950:sramecc+:xnack-", AMD, "OpenCL 2.1", "amd", "cdna", 64, 64, ()),
    ("gfx1250", AMD, "OpenCL 2.1", "amd", "", 32, 128, ()),
    ("AMD Radeon RX 7900 XTX (radeonsi, navi31, LLVM 17.0.6)", "AMD", "OpenCL 3.0", "amd", "rdna3", 32, 64, ()),
    ("AMD Radeon RX 9070 XT (radeonsi, gfx1201, ACO, DRM 3.61)", "AMD", "OpenCL 3.0", "amd", "rdna4", 32, 64, ()),
    ("AMD Radeon 8060S Graphics (radeonsi, gfx1151, LLVM 20.1)", "AMD", "OpenCL 3.0", "amd", "rdna3.5", 32, 64, ()),
    ("AMD Custom GPU 0405 (radeonsi, vangogh, LLVM 15.0.7)", "AMD", "OpenCL 3.0", "amd", "rdna2", 32, 64, ()),
    ("AMD Radeon RX 6900 XT (RADV NAVI21)", "AMD", CLVK, "amd", "rdna2", 32, 64, ()),
    ("AMD VERDE (DRM 2.50.0, LLVM 10.0.0)", "AMD", "OpenCL 1.1 Mesa", "amd", "gcn", 64, 64, ()),
    ("Radeon RX 560 Series", AMD, "OpenCL 2.0 AMD-APP", "amd", "gcn", 64, 64, ()),
    ("Hainan", AMD, "OpenCL 1.2 AMD-APP", "amd", "gcn", 64, 64, ()),
    ("NVIDIA GeForce RTX 5060 Ti", NVIDIA, "OpenCL 3.0 CUDA", "nvidia", "blackwell", 32, 128, SUB),
    ("NVIDIA RTX 500 Ada Generation Laptop GPU", NVIDIA, "OpenCL 3.0 CUDA", "nvidia", "ada", 32, 128, SUB),
    ("NVIDIA GH200 480GB", NVIDIA, "OpenCL 3.0 CUDA", "nvidia", "hopper", 32, 128, SUB),
    ("NVIDIA GeForce RTX 3060", "10de", "OpenCL 3.0 PoCL HSTR: CUDA-sm_86", "nvidia", "ampere", 32, 128, SUB),
    ("GeForce GTX 1080 (NVK GP104)", "NVIDIA", CLVK, "nvidia", "pascal", 32, 128, SUB),
    ("Apple M4", "Apple", "OpenCL 1.2 (Jul 20 2025)", "apple", "m4", 32, 128, ()),
    ("Apple M2 Pro (G14S B0)", "Mesa", "OpenCL 3.0", "apple", "m2", 32, 128, ()),
    ("V3D 7.1.10.2", "Broadcom", CLVK, "broadcom", "videocore7", 16, 4, ()),
    ("SwiftShader Device (Subzero)", "Google Inc.", CLVK, "generic", "", 4, 4, (SOFTWARE,)),
    # The device is asked.
    ("Maleoon 910", "HUAWEI", "OpenCL 2.0", "generic", "", 1, 32, ()),
    ("Vivante OpenCL Device GC7000UL.6204.0000", "Vivante Corporation", "OpenCL 1.2", "generic", "", 1, 32, ()),
    ("MTT S80", "Moore Threads", "OpenCL 3.0", "generic", "", 1, 32, ()),
    ("NV136", "nouveau", "OpenCL 3.0", "generic", "", 1, 32, ()),
]


@pytest.mark.parametrize(("name", "vendor", "version", "found"), [(*g[:3], g[3:]) for g in GPUS])
def test_gpu_names(name: str, vendor: str, version: str, found: tuple[str, str, int, int, tuple[str, ...]]) -> None:
    f = find_family(name, vendor, "", version)
    assert (f.family, f.generation, f.wave_size, f.lanes, f.quirks) == found
    device = DeviceInfo(family=f.family, generation=f.generation, wave_size=f.wave_size)
    assert device.lacks_wave == (found[0] == "generic" and found[2] == 1)


POCL_4 = (FRAGILE_COMPILER, SHARED_VALUES, NO_ASSEMBLY)
ZNVER4 = "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-znver4"
ARM64 = "OpenCL 3.0 PoCL HSTR: cpu-aarch64-unknown-linux-gnu-neoverse-n1"
RISCV = "OpenCL 3.0 PoCL HSTR: cpu-riscv64-unknown-linux-gnu-generic-rv64"
FPGA = "Intel(R) FPGA Emulation Platform for OpenCL(TM)"
CPUS = [
    # name, platform, version, kind, native vector of floats, driver; the family
    ("cpu-znver4-AMD Ryzen 9 7950X", POCL, ZNVER4, "cpu", 16, "6.0", Family("pocl", "avx512", 1, 32, POCL_4)),
    ("cpu", POCL, ARM64, "cpu", 4, "7.1", Family("pocl", "neon", 1, 8, POCL_4)),
    ("spacemit-x60", POCL, RISCV, "cpu", 4, "6.0", Family("pocl", "rvv", 1, 8, POCL_4)),
    ("basic-Intel(R) Core(TM) i5", POCL, "OpenCL 2.0 pocl", "cpu", 8, "1.8", Family("pocl", "avx2", 1, 16)),
    ("12th Gen Intel(R) Core(TM) i7-12700H", "Intel(R) OpenCL", "OpenCL 3.0 (Build 0)", "cpu", 8, "2024.18", None),
    ("AMD EPYC 7763 64-Core Processor", "Intel(R) OpenCL", "OpenCL 3.0 (Build 0)", "cpu", 8, "2024.18", None),
    ("Intel(R) FPGA Emulation Device", FPGA, "OpenCL 1.2", "accelerator", 8, "2023.16", Family()),
    ("Hexagon DSP", "QUALCOMM Snapdragon(TM)", "OpenCL 2.0", "accelerator", 1, "1", Family()),
    (
        "Oclgrind Simulator",
        "Oclgrind",
        "OpenCL 3.0 (Oclgrind 21.10)",
        "cpu",
        1,
        "Oclgrind 21.10",
        Family("generic", "sse", 1, 8, (PLAIN_BUILDS, SERIAL_BUILDS)),
    ),
    (
        "llvmpipe (LLVM 19.1.7, 128 bits)",
        "rusticl",
        "OpenCL 3.0",
        "cpu",
        4,
        "25.0.7",
        Family("llvmpipe", "", 4, 4, (SOFTWARE, SHALLOW_FLOW)),
    ),
    ("SwiftShader Device (LLVM 16.0.0)", "clvk", CLVK, "cpu", 1, CLVK, Family("generic", "", 4, 4, (SOFTWARE,))),
]


@pytest.mark.parametrize(("name", "platform", "version", "kind", "width", "driver", "family"), CPUS)
def test_cpu_names(
    name: str, platform: str, version: str, kind: str, width: int, driver: str, family: Family | None
) -> None:
    found = find_family(name, "QUALCOMM" if "Hexagon" in name else "", platform, version, kind, width, driver)
    assert found == (family or Family("intel", "avx2", 1, 16))
