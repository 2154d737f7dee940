"""The enumerations of onnxruntime's API, with its names and numbers."""

from __future__ import annotations

from enum import IntEnum


class _Enum(IntEnum):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class GraphOptimizationLevel(_Enum):
    """The amount of graph rewriting. Without effect: all passes run, and keep the results."""

    ORT_DISABLE_ALL, ORT_ENABLE_BASIC, ORT_ENABLE_EXTENDED, ORT_ENABLE_LAYOUT, ORT_ENABLE_ALL = 0, 1, 2, 3, 99


class ExecutionMode(_Enum):
    """Whether independent branches run concurrently. Without effect: the device's queue decides."""

    ORT_SEQUENTIAL, ORT_PARALLEL = range(2)


class ExecutionOrder(_Enum):
    """The order of independent nodes. Without effect: the memory planner chooses it."""

    DEFAULT, PRIORITY_BASED, MEMORY_EFFICIENT = range(3)


class OrtAllocatorType(_Enum):
    """Types of allocators."""

    INVALID, ORT_DEVICE_ALLOCATOR, ORT_ARENA_ALLOCATOR = -1, 0, 1


class OrtMemType(_Enum):
    """The use of memory."""

    CPU_INPUT, CPU_OUTPUT, CPU, DEFAULT = -2, -1, -1, 0


class OrtDeviceMemoryType(_Enum):
    """Whether the host can access a device's memory."""

    DEFAULT, HOST_ACCESSIBLE = 0, 5


class OrtMemoryInfoDeviceType(_Enum):
    """Types of devices with memory."""

    CPU, GPU, FPGA, NPU = range(4)


class OrtHardwareDeviceType(_Enum):
    """Types of devices."""

    CPU, GPU, NPU = range(3)


class OrtDeviceVendorId(_Enum):
    """PCI numbers of vendors."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(_Enum):
    """The preferred device if the caller names none."""

    DEFAULT, PREFER_CPU, PREFER_NPU, PREFER_GPU, MAX_PERFORMANCE, MAX_EFFICIENCY, MIN_OVERALL_POWER = range(7)


class OrtSparseFormat(_Enum):
    """Layouts of sparse tensors."""

    ORT_SPARSE_UNDEFINED, ORT_SPARSE_COO, ORT_SPARSE_CSRC, ORT_SPARSE_BLOCK_SPARSE = 0, 1, 2, 4


class OrtCompileApiFlags(_Enum):
    """Flags of ModelCompiler."""

    NONE, ERROR_IF_NO_NODES_COMPILED, ERROR_IF_OUTPUT_FILE_EXISTS = range(3)


class ModelPackageWriteMode(_Enum):
    """The format of ModelPackage.commit."""

    PRESERVE, DENSE = range(2)
