"""OrtDevice, OrtMemoryInfo and OrtEpDevice: devices and memory in onnxruntime's API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ....errors import InputError, UnsupportedApiError
from ....ir.device.device_info import DeviceInfo
from ....lazy_dataclass import dataclass
from .ort_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)

_TYPES = {"cpu": 0, "opencl_pinned": 0, "opencl": 1, "gpu": 1, "cuda": 1, "hip": 1, "webgpu": 1, "npu": 3, "cann": 3}
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


def _constant(number: int) -> Callable[[], int]:
    """A static method that returns one of onnxruntime's numbers."""
    return staticmethod(lambda: number)


class OrtDevice:
    """A kind of memory of a device, such as `OrtDevice.make('cpu', 0)`. name: as values and bindings take it."""

    __slots__ = ("_id", "_mem", "_type", "_vendor", "name")

    cpu, gpu, fpga, npu, dml = map(_constant, range(5))
    cuda, webgpu, cann = gpu, gpu, npu
    default_memory = _constant(0)

    def __init__(self, device_type: int, mem_type: int, *numbers: int) -> None:
        """`OrtDevice(type, memory, id)` or `OrtDevice(type, memory, vendor, id)`."""
        self._type, self._mem = int(device_type), int(mem_type)
        *vendor, self._id = numbers if numbers else (0,)
        self._vendor = int(vendor[0]) if vendor else 0
        self.name = {0: "cpu", 1: "gpu"}.get(self._type, "npu")

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device 'cpu', 'opencl', 'gpu', 'cuda'... Raises InputError for unknown names."""
        if ort_device_name not in _TYPES:
            raise InputError(f"Unsupported device type: {ort_device_name}; choose {', '.join(_TYPES)}")
        vendor = int(vendor_id) if vendor_id >= 0 else int(_VENDORS.get(ort_device_name, 0))
        made = OrtDevice(_TYPES[ort_device_name], 0, vendor, device_id)
        made.name = ort_device_name
        return made

    def device_id(self) -> int:
        """The index among devices of its type."""
        return self._id

    def device_type(self) -> int:
        """0 for CPUs, 1 for GPUs, 2 for FPGAs, 3 for NPUs, 4 for DirectML."""
        return self._type

    def device_vendor_id(self) -> int:
        """The vendor's PCI number, 0 if unknown."""
        return self._vendor

    vendor_id = device_vendor_id

    def device_mem_type(self) -> int:
        """0, the device's own memory."""
        return self._mem

    mem_type = device_mem_type

    def _get_c_device(self) -> OrtDevice:
        return self


class OrtMemoryInfo:
    """The memory of a device, and its allocator."""

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
        """Create a description with vendor and memory type."""
        made = OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT)
        made.device_mem_type, made.device_vendor_id = mem_type, vendor_id
        return made


class OrtArenaCfg:
    """Sizes of an arena, without effect: the memory planner allocates all memory."""

    _NAMES = (
        *("max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk"),
        *("initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes"),
    )

    def __init__(self, *sizes: Any) -> None:
        """sizes: four numbers in the order of `_NAMES`, or a dict by name."""
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
    """A device and its execution provider, as in `get_ep_devices()`."""

    ep_name: str
    ep_vendor: str
    ep_metadata: Mapping[str, str]
    ep_options: Mapping[str, str]
    device: OrtHardwareDevice

    def memory_info(self, mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT) -> OrtMemoryInfo:
        """The device's memory."""
        return OrtMemoryInfo("OpenCL", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)

    def create_sync_stream(self, *args: Any) -> Any:
        """Raise UnsupportedApiError: runs wait for the device themselves."""
        raise UnsupportedApiError("streams are not offered: every run waits until the device has finished")


def describe_ep_device(info: DeviceInfo, number: int, version: str) -> OrtEpDevice:
    """Describe an OpenCL device in onnxruntime's form. number: the index among OpenCL devices."""
    lowered = f"{info.vendor} {info.name}".lower()
    vendor = next((v for name, v in _VENDOR_WORDS if name in lowered), OrtDeviceVendorId.NONE)
    kind = OrtHardwareDeviceType.CPU if info.on_host else OrtHardwareDeviceType.GPU
    hardware = OrtHardwareDevice(kind, info.vendor, int(vendor), number, {"name": info.name, "id": info.id})
    return OrtEpDevice("OpenCLExecutionProvider", "Opalite", {"version": version}, {"device": info.id}, hardware)
