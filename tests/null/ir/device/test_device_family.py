"""Device names to families: every name below is what a driver reports."""

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
    SHORT_LOOPS,
    SOFTWARE,
    TIMER_OUTLIERS,
    Family,
    find_family,
)
from opalite.ir.device.device_info import DeviceInfo

POCL_4 = (FRAGILE_COMPILER, SHARED_VALUES, NO_ASSEMBLY)
NAMES = [
    # name, vendor, version, family, generation, wave size
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 3.0 Adreno(TM) 740", "adreno", "7xx", 64),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 2.0 Adreno(TM) 640", "adreno", "6xx", 64),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 2.0 Adreno(TM) 540", "adreno", "5xx", 32),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 2.0 Adreno(TM) 430", "adreno", "4xx", 32),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 1.2 Adreno(TM) 330", "adreno", "3xx", 1),
    ("FD618", "freedreno", "OpenCL 3.0", "adreno", "6xx", 64),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 2.0", "adreno", "", 32),
    ("Mali-T628", "ARM", "OpenCL 1.2 v1.r12p0-04rel0", "mali", "midgard", 1),
    ("Mali-T860", "ARM", "OpenCL 1.2", "mali", "midgard", 1),
    ("Mali-G71", "ARM", "OpenCL 2.0", "mali", "bifrost1", 4),
    ("Mali-G31", "ARM", "OpenCL 2.0", "mali", "bifrost1", 4),
    ("Mali-G72", "ARM", "OpenCL 2.0", "mali", "bifrost2", 4),
    ("Mali-G52 (Panfrost)", "Mesa", "OpenCL 3.0", "mali", "bifrost2", 8),
    ("Mali-G76 r0p0", "ARM", "OpenCL 2.0", "mali", "bifrost3", 8),
    ("Mali-G57", "ARM", "OpenCL 2.0", "mali", "valhall", 16),
    ("Mali-G710", "ARM", "OpenCL 3.0", "mali", "valhall", 16),
    ("Mali-LODX r0p0 Immortalis-G720", "ARM", "OpenCL 3.0", "mali", "fifth", 16),
    ("Mali-G999", "ARM", "OpenCL 3.0", "mali", "", 16),
    ("PowerVR Rogue GE8320", "Imagination Technologies", "OpenCL 1.2", "powervr", "rogue", 32),
    ("PowerVR Rogue GX6250", "Imagination Technologies", "OpenCL 1.2", "powervr", "rogue", 32),
    ("PowerVR B-Series BXM-8-256", "Imagination Technologies", "OpenCL 3.0", "powervr", "b-series", 32),
    ("PowerVR SGX544", "Imagination Technologies", "OpenCL 1.1", "powervr", "sgx", 1),
    ("Intel(R) UHD Graphics 630", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "gen9", 16),
    ("Intel(R) Gen9 HD Graphics NEO", "Intel(R) Corporation", "OpenCL 2.1 NEO", "intel", "gen9", 16),
    ("Intel(R) HD Graphics 530", "Intel(R) Corporation", "OpenCL 2.1 NEO", "intel", "gen9", 16),
    ("Intel(R) HD Graphics 5500", "Intel(R) Corporation", "OpenCL 2.0", "intel", "gen8", 16),
    ("Intel(R) HD Graphics 4600", "Intel(R) Corporation", "OpenCL 1.2", "intel", "gen7", 16),
    ("Intel(R) Iris(R) Plus Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "gen11", 16),
    ("Intel(R) Iris(R) Plus Graphics 655", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "gen9", 16),
    ("Intel(R) Iris(R) Xe Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe-lp", 16),
    ("Intel(R) UHD Graphics 770", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe-lp", 16),
    ("Intel(R) Arc(TM) A770 Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe-hpg", 16),
    ("Intel(R) Arc(TM) B580 Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe2", 16),
    ("Mesa Intel(R) UHD Graphics 630 (CFL GT2)", "Intel", "OpenCL 3.0", "intel", "gen9", 16),
    ("Intel(R) Some Later Graphics", "Intel(R) Corporation", "OpenCL 3.0", "intel", "", 16),
    ("gfx1030", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "rdna2", 32),
    ("gfx1010:xnack-", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "rdna1", 32),
    ("gfx1100", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "rdna3", 32),
    ("gfx1201", "Advanced Micro Devices, Inc.", "OpenCL 2.1", "amd", "rdna4", 32),
    ("gfx90a:sramecc+:xnack-", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "cdna", 64),
    ("gfx906", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "gcn5", 64),
    ("gfx803", "Advanced Micro Devices, Inc.", "OpenCL 1.2", "amd", "gcn", 64),
    ("Ellesmere", "Advanced Micro Devices, Inc.", "OpenCL 2.0 AMD-APP", "amd", "gcn", 64),
    ("AMD Radeon RX 6800 (radeonsi, navi21, LLVM 15.0.7, DRM 3.49)", "AMD", "OpenCL 3.0", "amd", "rdna2", 32),
    ("AMD Radeon Pro 5500M Compute Engine", "AMD", "OpenCL 1.2", "amd", "", 64),
    ("NVIDIA H200", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "hopper", 32),
    ("NVIDIA A100-SXM4-80GB", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "ampere", 32),
    ("NVIDIA GeForce RTX 4090", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "ada", 32),
    ("NVIDIA GeForce RTX 3060", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "ampere", 32),
    ("NVIDIA GeForce RTX 5090", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "blackwell", 32),
    ("Tesla T4", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "turing", 32),
    ("Tesla V100-SXM2-16GB", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "volta", 32),
    ("GeForce GTX 1080 Ti", "NVIDIA Corporation", "OpenCL 1.2 CUDA", "nvidia", "pascal", 32),
    ("GeForce GTX 970", "NVIDIA Corporation", "OpenCL 1.2 CUDA", "nvidia", "maxwell", 32),
    ("Tesla K80", "NVIDIA Corporation", "OpenCL 1.2 CUDA", "nvidia", "kepler", 32),
    ("Apple M1", "Apple", "OpenCL 1.2 ", "apple", "m1", 32),
    ("Apple M3 Max", "Apple", "OpenCL 1.2 ", "apple", "m3", 32),
    # Public reports of newer devices; the comment at the end of a line is the place on GitHub, or the driver's own
    # table.
    ("QUALCOMM ", "QUALCOMM", "OpenCL 3.0 QUALCOMM build: commit unknown", "adreno", "", 64),
    ("QUALCOMM Adreno(TM)", "QUALCOMM", "OpenCL 1.2", "adreno", "", 1),
    ("QUALCOMM Adreno(TM) 643", "QUALCOMM", "OpenCL 3.0 Adreno(TM) 643", "adreno", "6xx", 64),  # whisper.cpp 3935
    ("QUALCOMM Adreno(TM) 735", "QUALCOMM", "OpenCL 3.0 Adreno(TM) 735", "adreno", "7xx", 64),  # hashcat 4579
    ("QUALCOMM Adreno(TM) 750", "QUALCOMM", "OpenCL 3.0 Adreno(TM) 750", "adreno", "7xx", 64),  # clinfo 92
    ("QUALCOMM Adreno(TM) 830", "QUALCOMM", "OpenCL 3.0 Adreno(TM) 830", "adreno", "8xx", 64),  # llama.cpp 14535
    ("QUALCOMM Adreno(TM) 840", "QUALCOMM", "OpenCL 3.0 Adreno(TM) 840", "adreno", "8xx", 64),  # llama.cpp 22755
    ("Qualcomm(R) Adreno(TM) X1-85 GPU", "QUALCOMM", "OpenCL 3.0 QUALCOMM build: 827.0", "adreno", "7xx", 64),
    ("Qualcomm(R) Adreno(TM) X2-90 GPU", "QUALCOMM", "OpenCL 3.0 QUALCOMM build", "adreno", "8xx", 64),
    ("Qualcomm(R) Adreno(TM) 8cx Gen 3", "QUALCOMM", "OpenCL 3.0", "adreno", "6xx", 64),
    ("FD740", "freedreno", "OpenCL 3.0", "adreno", "7xx", 64),  # Mesa, freedreno_devices.py
    ("Mali-LODX r0p0", "ARM", "OpenCL 3.0 v1.g6p0-01eac0", "mali", "valhall", 16),  # an RK3588 by libmali g6p0
    ("Mali-G610 r0p0", "ARM", "OpenCL 3.0 v1.g13p0-01eac0", "mali", "valhall", 16),  # rockchip-linux/mpp 607
    ("Mali-G610 (Panfrost)", "Arm", "OpenCL 3.0", "mali", "valhall", 16),
    ("Mali-G710 r0p0", "ARM", "OpenCL 3.0 v1.r51p0-00eac0", "mali", "valhall", 16),  # GPGPUTasks2025 60
    ("Mali-G615 MC2 r1p4", "ARM", "OpenCL 3.0", "mali", "valhall", 16),
    ("Mali-G715-Immortalis MC11 r1p2", "ARM", "OpenCL 3.0", "mali", "valhall", 16),
    ("Immortalis-G720 r0p0", "ARM", "OpenCL 3.0", "mali", "fifth", 16),
    ("Immortalis-G925 r0p1", "ARM", "OpenCL 3.0", "mali", "fifth", 16),
    ("Mali-G725", "ARM", "OpenCL 3.0", "mali", "fifth", 16),
    ("Mali-G1-Ultra MC12 r0p0", "ARM", "OpenCL 3.0 v1.r54p1", "mali", "fifth", 16),  # Linux, panthor_hw.c
    ("Mali-TODX r0p0", "ARM", "OpenCL 3.0", "mali", "valhall", 16),
    ("Mali-T999", "ARM", "OpenCL 1.2", "mali", "midgard", 1),
    (
        "PowerVR D-Series DXT-48-1536 MC1",
        "Imagination Technologies",
        "OpenCL 3.0",
        "powervr",
        "d-series",
        32,
    ),  # Pixel 10
    ("PowerVR B-Series BXE-4-32", "Imagination Technologies", "OpenCL 3.0", "powervr", "b-series", 32),  # pocl 1263
    ("PowerVR C-Series CXT-48-1536", "Imagination Technologies", "OpenCL 3.0", "powervr", "c-series", 32),
    ("PowerVR Rogue G6230", "Imagination Technologies", "OpenCL 1.2", "powervr", "rogue", 32),  # coriander 3
    ("Samsung Xclipse 920", "Samsung Electronics", "OpenCL 3.0", "amd", "rdna2", 32),
    ("Samsung Xclipse 950", "Samsung Electronics", "OpenCL 3.0", "amd", "rdna3", 32),
    ("V3D 7.1.7.0", "Broadcom", "OpenCL 3.0 CLVK on Vulkan", "broadcom", "videocore7", 16),
    ("V3D 4.2", "Broadcom", "OpenCL 3.0", "broadcom", "videocore6", 16),
    ("VideoCore IV GPU", "Broadcom", "OpenCL 1.2 VC4CL 0.4.9999", "broadcom", "videocore4", 16),  # beagle-lib 157
    ("Intel(R) Arc(TM) Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe-lpg", 16),
    ("Intel(R) Arc(TM) 140V GPU (16GB)", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe2", 16),
    ("Intel(R) Arc(TM) 140T GPU (16GB)", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe-lpg", 16),
    ("Intel(R) Arc(TM) Pro B50 Graphics", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe2", 16),
    ("Intel(R) Arc(TM) B390 GPU", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe3", 16),
    ("Intel(R) Data Center GPU Max 1550", "Intel(R) Corporation", "OpenCL 3.0 NEO", "intel", "xe-hpc", 16),
    ("Mesa Intel(R) Iris(R) Xe Graphics (RPL-P)", "Intel", "OpenCL 3.0", "intel", "xe-lp", 16),  # GPGPUTasks2025 22
    ("gfx1103", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "rdna3", 32),
    ("gfx1151", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "rdna3.5", 32),
    ("gfx942:sramecc+:xnack-", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "cdna", 64),
    ("gfx908:sramecc+:xnack-", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "cdna", 64),  # CLRX-mirror 34
    ("gfx90c", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "gcn5", 64),
    ("gfx1310", "Advanced Micro Devices, Inc.", "OpenCL 2.0", "amd", "", 32),
    ("AMD Radeon 780M Graphics (radeonsi, gfx1103_r1, LLVM 20.1.2, DRM 3.61)", "AMD", "OpenCL 3.0", "amd", "rdna3", 32),
    ("AMD Radeon Graphics (radeonsi, renoir, LLVM 15.0.7, DRM 3.49)", "AMD", "OpenCL 3.0", "amd", "gcn5", 64),
    ("AMD TURKS (DRM 2.50.0 / 5.15.0-72-generic, LLVM 15.0.7)", "AMD", "OpenCL 1.1", "amd", "terascale", 64),
    ("NVIDIA Thor", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "blackwell", 32),
    ("NVIDIA GB10", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "blackwell", 32),
    ("NVIDIA B300 SXM6 AC", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "blackwell", 32),
    (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "NVIDIA Corporation",
        "OpenCL 3.0",
        "nvidia",
        "blackwell",
        32,
    ),
    ("NVIDIA RTX 5000 Ada Generation", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "ada", 32),
    (
        "NVIDIA GeForce RTX 4070 SUPER",
        "NVIDIA Corporation",
        "OpenCL 3.0 CUDA",
        "nvidia",
        "ada",
        32,
    ),  # GPGPUTasks2026 129
    ("NVIDIA L40S", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "ada", 32),
    ("NVIDIA A10G", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "ampere", 32),
    ("Quadro RTX 5000", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "turing", 32),
    ("Quadro RTX 4000", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "turing", 32),
    (
        "NVIDIA GeForce GTX 1650 with Max-Q Design",
        "NVIDIA Corporation",
        "OpenCL 3.0",
        "nvidia",
        "turing",
        32,
    ),  # 2025 46
    ("NVIDIA GeForce MX450", "NVIDIA Corporation", "OpenCL 3.0 CUDA", "nvidia", "turing", 32),
    ("Apple M4 Max", "Apple", "OpenCL 1.2 ", "apple", "m4", 32),
    ("Vivante OpenCL Device GC7000L.6214.0000", "Vivante Corporation", "OpenCL 3.0", "generic", "", 1),
]


@pytest.mark.parametrize("name, vendor, version, family, generation, wave", NAMES, ids=[n[0] + n[2] for n in NAMES])
def test_gpu_names(name: str, vendor: str, version: str, family: str, generation: str, wave: int) -> None:
    found = find_family(name, vendor, "", version)
    assert (found.family, found.generation, found.wave_size) == (family, generation, wave)


@pytest.mark.parametrize(
    "name, platform, version, width, family, generation",
    [
        ("pthread-AMD EPYC", "Portable Computing Language", "OpenCL 3.0 PoCL x86_64", 16, "pocl", "avx512"),
        ("cpu-haswell-Intel(R) Core(TM) i7", "Portable Computing Language", "OpenCL 3.0", 8, "pocl", "avx2"),
        ("cpu-cortex-a76", "Portable Computing Language", "OpenCL 3.0 aarch64", 4, "pocl", "neon"),
        ("Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz", "Intel(R) OpenCL", "OpenCL 3.0", 8, "intel", "avx2"),
    ],
)
def test_cpu_names(name: str, platform: str, version: str, width: int, family: str, generation: str) -> None:
    found = find_family(name, "", platform, version, "cpu", width)
    assert (found.family, found.generation) == (family, generation)
    assert found.lanes == 2 * width


def test_llvmpipe_runs_work_items_as_lanes() -> None:
    words = ("llvmpipe (LLVM 15.0.7, 256 bits)", "Mesa", "rusticl", "OpenCL 3.0", "cpu", 4)
    found = find_family(*words, "25.0.7-2+deb13u1")
    assert found == Family("llvmpipe", "", 8, 8, (SOFTWARE, SHALLOW_FLOW))
    assert find_family(*words, "22.3.6").quirks == (SOFTWARE, SHALLOW_FLOW, SHORT_LOOPS)
    assert find_family(*words, "26.2.6-1").quirks == (SOFTWARE, SHALLOW_FLOW)
    device = DeviceInfo(kind="cpu", wave_size=found.wave_size)
    assert device.on_host
    assert not device.is_cpu
    assert DeviceInfo(kind="cpu").is_cpu


@pytest.mark.parametrize(
    ("model", "waves", "registers"),
    [
        ("640", 30, 128 * 144 * 16),
        ("630", 16, 128 * 96 * 16),
        ("650", 16, 128 * 64 * 16),
        ("740", 16, 128 * 96 * 16),
        ("X1-85", 16, 128 * 96 * 16),
        ("X2-90", 0, 0),
        ("506", 0, 0),
    ],
)
def test_registers_of_an_adreno(model: str, waves: int, registers: int) -> None:
    found = find_family("QUALCOMM Adreno(TM)", version=f"OpenCL 3.0 Adreno(TM) {model}")
    assert (found.max_waves, found.register_bytes) == (waves, registers)


def test_quirks_follow_the_family() -> None:
    assert find_family("QUALCOMM Adreno(TM)", version="OpenCL 1.2 Adreno(TM) 330").quirks == (TIMER_OUTLIERS,)
    assert find_family("QUALCOMM Adreno(TM)", version="OpenCL 2.0 Adreno(TM) 640").quirks == ()
    assert FEW_EVENTS in find_family("Mali-G76").quirks
    assert find_family("Oclgrind Simulator", platform="Oclgrind", kind="cpu").quirks == (PLAIN_BUILDS, SERIAL_BUILDS)
    drivers = {"3.0-rc2": (), "3.1+debian": ()} | dict.fromkeys(("4.0", "5.0+debian", "6.0", "10.1"), POCL_4)
    for driver, quirks in drivers.items():
        found = find_family("cpu", platform="Portable Computing Language", kind="cpu", driver=driver)
        assert found.quirks == quirks
    assert DeviceInfo(quirks=(PLAIN_BUILDS,)).build_options == "-cl-opt-disable"
    assert DeviceInfo().build_options == ""
    assert DeviceInfo(family="nvidia").build_options == "-cl-fp32-correctly-rounded-divide-sqrt"
