"""DeviceInfo: a device as plain data, so that planning needs no device."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cached_property
from typing import Any

from ...lazy_dataclass import dataclass
from .device_family import (
    ADDRESSES,
    ARM_DOT,
    BLOCK_LOADS,
    BYTE_FOURS,
    BYTE_PAIRS,
    HALF_TYPES,
    HALF_VECTORS,
    NO_ASSEMBLY,
    PLAIN_BUILDS,
    PTX_DOT,
    QCOM_DOT,
    SLOW_DOT,
    SUB_GROUPS,
)

SUB_GROUP_EXTENSIONS = ("cl_khr_subgroups", "cl_intel_subgroups")
"""Extensions with reductions over sub-groups."""


@dataclass(frozen=True)
class DeviceInfo:
    """Properties of an OpenCL device that planning uses. JSON both ways; sizes in bytes.

    Defaults describe a minimal OpenCL 1.2 device, so that a fixture states only differences.
    """

    name: str = "generic"
    vendor: str = ""
    platform: str = ""
    version: str = "OpenCL 1.2"
    driver: str = ""
    id: str = ""
    kind: str = "gpu"  # cpu, gpu or accelerator
    family: str = "generic"  # pocl, adreno, mali, powervr, intel, amd, nvidia, apple, generic (device_family.py)
    generation: str = ""  # 5xx, bifrost2, valhall, rdna2, avx512...
    compute_units: int = 1
    clock_mhz: int = 0
    wave_size: int = 1  # work-items in lock step; 1 where unknown
    full_wave: int = 0  # work-items in lock step in kernels of few registers, where that is more
    max_waves: int = 0  # most waves in flight in a compute unit; 0 where unknown
    register_bytes: int = 0  # of a compute unit; 0 where unknown
    lanes: int = 32  # float32 multiply-adds that a compute unit starts each clock
    max_work_group_size: int = 64
    max_work_item_sizes: tuple[int, int, int] = (64, 64, 64)
    local_mem: int = 32768
    local_mem_dedicated: bool = True  # False: local memory lies in global memory
    global_mem: int = 1 << 30
    max_alloc: int = 1 << 28
    base_align: int = 128
    image_support: bool = False
    image2d_max: tuple[int, int] = (0, 0)
    image_buffer_max: int = 0  # texels of an image over a buffer
    cache_bytes: int = 0
    native_float_width: int = 1
    fp16: bool = False  # half arithmetic builds (listed, or found by a probe build)
    fp64: bool = False
    unified_memory: bool = False  # the host's memory: maps cost no copy
    extensions: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()

    @cached_property
    def is_cpu(self) -> bool:
        """Whether work-groups run as loops on CPU cores, one work-item after the other (not llvmpipe)."""
        return self.on_host and self.wave_size == 1

    @cached_property
    def on_host(self) -> bool:
        """Whether the device is the host's CPU and memory."""
        return self.kind == "cpu"

    @cached_property
    def title(self) -> str:
        """The device as its owner calls it: 'AMD EPYC, CPU by PoCL 3.0', 'Adreno 640', 'NVIDIA H200'."""
        if self.family == "pocl" and self.on_host:
            # PoCL puts its driver, and from version 3.1 on the processor's kind, in front of the processor's name.
            name = re.sub(r"^(?:pthread|cpu|basic)-", "", self.name)
            kind = re.search(r"HSTR: \w+-\S+-([\w.-]+)$", self.version)
            if kind is not None and name.startswith(f"{kind[1]}-"):
                name = name[len(kind[1]) + 1 :]
            else:
                name = re.sub(r"^[a-z][a-z0-9-]*-(?=[A-Z])", "", name)
            number = re.match(r"\d+\.\d+", self.driver)
            return f"{name}, CPU by PoCL{f' {number[0]}' if number else ''}"
        words = f"{self.name} {self.version}"
        if self.family == "adreno" and (model := re.search(r"Adreno\(TM\) (\w*\d[\w-]*)", words)):
            return f"Adreno {model[1]}"
        if self.family == "amd" and self.name.startswith("gfx"):
            return f"AMD {self.name}"
        return re.sub(r"\((?:R|TM|C)\)", "", self.name).strip()

    @property
    def lacks_wave(self) -> bool:
        """Whether the wave size is to be measured: a GPU that no table has, whose driver reports none."""
        return self.kind == "gpu" and self.wave_size == 1 and not self.generation

    @property
    def is_mobile(self) -> bool:
        """Whether the device is a phone's GPU, with expensive launches and slow memory."""
        return self.family in ("adreno", "mali", "powervr")

    @cached_property
    def peak_flops(self) -> float:
        """Multiply-add peak estimate in FLOP/s; only ratios between kernels depend on it."""
        # Some mobile drivers report a clock of a few MHz.
        clock = self.clock_mhz if self.clock_mhz >= 100 else 800
        return self.compute_units * clock * 1e6 * 2 * self.lanes

    @cached_property
    def bandwidth(self) -> float:
        """Memory bandwidth estimate in bytes/s: a desktop CPU, shared memory, a graphics card, a data-centre card."""
        if self.on_host:
            return 2e10
        if self.unified_memory:
            return 3e10
        return 3e11 if self.global_mem < 32 << 30 else 2e12

    @cached_property
    def launch_s(self) -> float:
        """Seconds of one launch: 3 to 5 µs measured on PoCL and on an H200, more on phones."""
        return 4e-6 if self.on_host else 2e-5 if self.is_mobile else 5e-6

    @cached_property
    def prefers_images(self) -> bool:
        """Whether image2d is usually faster than buffers: Adreno and PowerVR (MNN's choice)."""
        return self.image_support and self.family in ("adreno", "powervr")

    @property
    def half_sums(self) -> bool:
        """Whether kernels can compute in vectors of halves (fp16_fast)."""
        return self.fp16 and (self.half_functions or HALF_TYPES in self.quirks)

    @property
    def half_functions(self) -> bool:
        """Whether OpenCL C's functions on halves build: loads, conversions, fma, select."""
        return self.has("cl_khr_fp16") or HALF_VECTORS in self.quirks

    @property
    def fast_half(self) -> bool:
        """Whether half storage is faster: it halves a GPU's traffic, CPUs convert at every access."""
        return self.fp16 and not self.on_host

    @property
    def dot_product(self) -> str:
        """The 4-way int8 dot product instruction: "ptx", "khr", "qcom" or "arm" (extensions), or ""."""
        if PTX_DOT in self.quirks:
            return "ptx"
        if self.has("cl_khr_integer_dot_product") and SLOW_DOT not in self.quirks:
            return "khr"
        return "qcom" if QCOM_DOT in self.quirks else "arm" if ARM_DOT in self.quirks else ""

    @property
    def byte_dots(self) -> str:
        """The int8 dot product of a CPU's vectors: "fours" (VNNI), "pairs" (vpmaddubsw, 16-bit sums), or ""."""
        return "fours" if BYTE_FOURS in self.quirks else "pairs" if BYTE_PAIRS in self.quirks else ""

    @property
    def assembly(self) -> bool:
        """Whether the compiler accepts inline x86 assembly."""
        return NO_ASSEMBLY not in self.quirks

    @property
    def sub_groups(self) -> bool:
        """Whether kernels may use sub-group reductions: listed as an extension, and a probe build works."""
        return SUB_GROUPS in self.quirks and any(self.has(e) for e in SUB_GROUP_EXTENSIONS)

    @property
    def block_loads(self) -> bool:
        """Whether kernels may use sub-group block reads (cl_intel_subgroups): listed, and a probe build works."""
        return self.sub_groups and BLOCK_LOADS in self.quirks and self.has("cl_intel_subgroups")

    @property
    def recordable_queues(self) -> bool:
        """Whether launches can be recorded by Qualcomm's extension (cl_qcom_recordable_queues)."""
        return self.has("cl_qcom_recordable_queues")

    @property
    def links_launches(self) -> bool:
        """Whether launches may be linked into a persistent kernel (docs/running.md)."""
        return self.family == "nvidia" and ADDRESSES in self.quirks

    @property
    def flush_every(self) -> int:
        """Launches between queue flushes, so that the GPU starts early; 0 leaves it to the driver.

        24 on Mali and 16 on PowerVR, as in TensorFlow Lite.
        """
        return {"mali": 24, "powervr": 16}.get(self.family, 0)

    @property
    def one_address_space(self) -> bool:
        """Whether private and global pointers are interchangeable: on CPUs that run kernels as plain functions."""
        return self.is_cpu and self.family in ("pocl", "intel")

    @property
    def build_options(self) -> str:
        """Compiler options of every program.

        NVIDIA's compiler divides by an approximate reciprocal by default. That rounds values near a half to another
        quantized integer.
        """
        if self.family == "nvidia":
            return "-cl-fp32-correctly-rounded-divide-sqrt"
        return "-cl-opt-disable" if PLAIN_BUILDS in self.quirks else ""

    @cached_property
    def pack(self) -> int:
        """Channels in a block of the packed layout: a CPU's vector width, 4 (RGBA) on a GPU."""
        return max(4, min(16, self.native_float_width)) if self.is_cpu else 4

    def has(self, extension: str) -> bool:
        """Whether the driver lists `extension`."""
        return extension in self.extensions

    def fits_image(self, width: int, height: int) -> bool:
        """Whether a 2-D image of `width` x `height` texels is within the device's limits."""
        return self.image_support and width <= self.image2d_max[0] and height <= self.image2d_max[1]

    def wave_for(self, nbytes: int) -> int:
        """The wave size that suits a kernel whose work-items keep `nbytes` in registers; 0 where registers are unknown.

        The full wave where two of them fit, to hide each other's waiting: then at least 0.8 of the work-items of half
        waves are in flight, and they take fewer instructions.
        """
        if not (self.register_bytes and self.full_wave):
            return 0
        waves = min(self.max_waves, self.register_bytes // (self.full_wave * nbytes))
        return self.full_wave if waves >= 2 else self.wave_size

    def reads_texels(self, count: int) -> bool:
        """Whether kernels read a constant of `count` elements of 16 bytes as texels of an image over its buffer."""
        return self.prefers_images and count <= self.image_buffer_max

    def to_json(self) -> str:
        """JSON text that `from_json` reads back."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> DeviceInfo:
        """The device that `to_json` wrote; unknown keys are ignored."""
        raw: dict[str, Any] = json.loads(text)
        names = {f.name for f in dataclasses.fields(cls)}
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k in names}
        return cls(**fields)
