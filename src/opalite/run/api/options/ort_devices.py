"""Devices and memory as onnxruntime's API describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....errors import InputError, UnsupportedApiError
from ....ir.device.device_info import DeviceInfo
from .ort_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)

_TYPES = {"cpu": 0, "cuda": 1, "gpu": 1, "hip": 1, "webgpu": 1, "opencl": 1, "opencl_pinned": 0, "cann": 3, "npu": 3}
_TYPES["dml"] = 4
_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
    "webgpu": OrtDeviceVendorId.NONE,
}
_VENDOR_WORDS = (
    ("nvidia", OrtDeviceVendorId.NVIDIA),
    ("amd", OrtDeviceVendorId.AMD),
    ("advanced micro", OrtDeviceVendorId.AMD),
    ("intel", OrtDeviceVendorId.INTEL),
    ("qualcomm", OrtDeviceVendorId.QUALCOMM),
    ("arm", OrtDeviceVendorId.ARM),
)


class OrtDevice:
    """A kind of memory: what `OrtDevice.make('cpu', 0)` names. The word is what values and bindings take."""

    __slots__ = ("_id", "_mem", "_type", "_vendor", "name")

    def __init__(self, device_type: int, mem_type: int, *numbers: int) -> None:
        """`OrtDevice(type, memory, id)` or `OrtDevice(type, memory, vendor, id)`."""
        self._type, self._mem = int(device_type), int(mem_type)
        *vendor, self._id = numbers if numbers else (0,)
        self._vendor = int(vendor[0]) if vendor else 0
        self.name = {0: "cpu", 1: "gpu"}.get(self._type, "npu")

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device called 'cpu', 'opencl', 'gpu', 'cuda'... InputError for other words."""
        if ort_device_name not in _TYPES:
            raise InputError(f"Unsupported device type: {ort_device_name}; choose {', '.join(_TYPES)}")
        vendor = int(vendor_id) if vendor_id >= 0 else int(_VENDORS.get(ort_device_name, 0))
        made = OrtDevice(_TYPES[ort_device_name], 0, vendor, device_id)
        made.name = ort_device_name
        return made

    def device_id(self) -> int:
        """Number among its kind."""
        return self._id

    def device_type(self) -> int:
        """0 for CPUs, 1 for GPUs, 3 for NPUs."""
        return self._type

    def device_vendor_id(self) -> int:
        """The vendor's PCI number, 0 if none was said."""
        return self._vendor

    vendor_id = device_vendor_id

    def device_mem_type(self) -> int:
        """0: the device's own memory."""
        return self._mem

    mem_type = device_mem_type

    def _get_c_device(self) -> OrtDevice:
        return self

    @staticmethod
    def cpu() -> int:
        """Number of CPUs' type."""
        return 0

    @staticmethod
    def gpu() -> int:
        """Number of GPUs' type."""
        return 1

    cuda = webgpu = gpu

    @staticmethod
    def npu() -> int:
        """Number of NPUs' type."""
        return 3

    cann = npu

    @staticmethod
    def dml() -> int:
        """Number of DirectML devices' type."""
        return 4

    @staticmethod
    def fpga() -> int:
        """Number of FPGAs' type."""
        return 2

    @staticmethod
    def default_memory() -> int:
        """Number of the devices' own memory."""
        return 0


class OrtMemoryInfo:
    """Where memory lies."""

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        self.name = name
        self.allocator_type = allocator_type
        self.device_id = device_id
        self.mem_type = mem_type
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """A description with vendor and kind of memory."""
        made = OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT)
        made.device_mem_type, made.device_vendor_id = mem_type, vendor_id
        return made


class OrtArenaCfg:
    """Sizes of an arena: kept, and without effect, for the memory planner lays out all memory."""

    _NAMES = (
        "max_mem",
        "arena_extend_strategy",
        "initial_chunk_size_bytes",
        "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes",
        "max_power_of_two_extend_bytes",
    )

    def __init__(self, *sizes: Any) -> None:
        """Four numbers in the order of the names, or a dict."""
        given = dict(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Mapping) else dict(zip(self._NAMES, sizes))  # noqa: B905
        unknown = [n for n in given if n not in self._NAMES]
        if unknown:
            raise InputError(f"Invalid OrtArenaCfg option: {unknown[0]}; choose {', '.join(self._NAMES)}")
        self.max_mem = int(given.get("max_mem", 0))
        for name in self._NAMES[1:]:
            setattr(self, name, int(given.get(name, -1)))


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A device of this machine."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OrtEpDevice:
    """A device with the provider that runs on it: what `get_ep_devices()` lists."""

    ep_name: str
    ep_vendor: str
    ep_metadata: Mapping[str, str]
    ep_options: Mapping[str, str]
    device: OrtHardwareDevice

    def memory_info(self, mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT) -> OrtMemoryInfo:
        """The device's memory."""
        return OrtMemoryInfo("OpenCL", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)

    def create_sync_stream(self, *args: Any) -> Any:
        """UnsupportedApiError: runs wait for the device by themselves."""
        raise UnsupportedApiError("streams are not offered: every run waits until the device has finished")


def describe_ep_device(info: DeviceInfo, number: int, version: str) -> OrtEpDevice:
    """An OpenCL device as onnxruntime would describe it."""
    lowered = f"{info.vendor} {info.name}".lower()
    vendor = next((v for name, v in _VENDOR_WORDS if name in lowered), OrtDeviceVendorId.NONE)
    kind = OrtHardwareDeviceType.CPU if info.on_host else OrtHardwareDeviceType.GPU
    hardware = OrtHardwareDevice(kind, info.vendor, int(vendor), number, {"name": info.name, "id": info.id})
    return OrtEpDevice("OpenCLExecutionProvider", "Opalite", {"version": version}, {"device": info.id}, hardware)
