"""Opalite: ONNX neural networks on any OpenCL device.

import opalite

session = opalite.InferenceSession("model.onnx", device="gpu")
outputs = session.run(None, {"x": array})
opalite.compile("model.onnx", "model.opal")  # a bundle: starts in half the time, and without onnx
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    BindingError,
    BuildError,
    BundleError,
    CheckError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    ExtraError,
    InputError,
    InputTypeError,
    MissingInputError,
    ModelError,
    ModelFileError,
    ModelFormatError,
    NoDeviceError,
    OpaliteError,
    OptionError,
    PlacementError,
    ShapeError,
    TerminatedError,
    UnsupportedApiError,
    UnsupportedOpError,
)
from .knobs import warn_of_unknown_names

if TYPE_CHECKING:
    from . import backend, capi
    from .cl.devices import devices
    from .ir.device import DeviceInfo
    from .llm.generator import Generation, Generator, generate
    from .llm.stream import Stream
    from .run.api.assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph
    from .run.api.binding import IOBinding
    from .run.api.compile import compile_model as compile
    from .run.api.enums import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        ModelPackageWriteMode,
        OrtAllocatorType,
        OrtCompileApiFlags,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtExecutionProviderDevicePolicy,
        OrtHardwareDeviceType,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
    )
    from .run.api.environment import (
        copy_tensors,
        create_and_register_allocator,
        create_and_register_allocator_v2,
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_ep_devices,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        register_execution_provider_library,
        set_global_thread_pool_sizes,
        set_seed,
        unregister_execution_provider_library,
    )
    from .run.api.hardware import OrtArenaCfg, OrtDevice, OrtEpDevice, OrtHardwareDevice, OrtMemoryInfo
    from .run.api.log_callback import set_default_logger_callback
    from .run.api.logs import set_default_logger_severity, set_default_logger_verbosity
    from .run.api.ortvalue import OrtValue
    from .run.api.run_options import RunOptions
    from .run.api.session import InferenceSession
    from .run.api.session_binding import SessionIOBinding
    from .run.api.session_options import SessionOptions
    from .run.api.state import State
    from .run.api.unsupported import (
        AdapterFormat,
        LoraAdapter,
        ModelCompiler,
        ModelPackage,
        ModelPackageComponentContext,
        ModelPackageContext,
        ModelPackageOptions,
        OrtEpContextData,
        OrtEpContextDataBuffer,
        OrtExternalInitializerInfo,
        OrtSyncStream,
        SparseTensor,
    )
    from .run.execute.trace import Timing
    from .run.model.ports import ModelMetadata, NodeArg
    from .run.queue.infer_queue import InferQueue
    from .run.queue.job import Job
    from .run.report.explain import Explanation

    __version__: str
    version: str

package_name = "opalite"
cuda_version = ""
"""onnxruntime's name for the CUDA that it was built with: none here."""

__all__ = [
    "AdapterFormat",
    "BindingError",
    "BuildError",
    "BundleError",
    "CheckError",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceMemoryError",
    "ExecutionMode",
    "ExecutionOrder",
    "Explanation",
    "ExtraError",
    "Generation",
    "Generator",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferQueue",
    "InferenceSession",
    "InputError",
    "InputTypeError",
    "Job",
    "LoraAdapter",
    "MissingInputError",
    "ModelCompiler",
    "ModelError",
    "ModelFileError",
    "ModelFormatError",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "NoDeviceError",
    "NodeArg",
    "OpaliteError",
    "OptionError",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "PlacementError",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "ShapeError",
    "SparseTensor",
    "State",
    "Stream",
    "TerminatedError",
    "Timing",
    "UnsupportedApiError",
    "UnsupportedOpError",
    "__version__",
    "backend",
    "capi",
    "compile",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "cuda_version",
    "devices",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "generate",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
    "version",
]

# Imported at first use: commands that need no kernels start in a fraction of the time.
_MODULES: dict[str, tuple[str, ...]] = {
    ".cl.devices": ("devices",),
    ".ir.device": ("DeviceInfo",),
    ".llm.generator": ("Generation", "Generator", "generate"),
    ".llm.stream": ("Stream",),
    ".run.api.assignment": ("OrtEpAssignedNode", "OrtEpAssignedSubgraph"),
    ".run.api.enums": (
        "ExecutionMode",
        "ExecutionOrder",
        "GraphOptimizationLevel",
        "ModelPackageWriteMode",
        "OrtAllocatorType",
        "OrtCompileApiFlags",
        "OrtDeviceMemoryType",
        "OrtDeviceVendorId",
        "OrtExecutionProviderDevicePolicy",
        "OrtHardwareDeviceType",
        "OrtMemType",
        "OrtMemoryInfoDeviceType",
        "OrtSparseFormat",
    ),
    ".run.api.environment": (
        "copy_tensors",
        "create_and_register_allocator",
        "create_and_register_allocator_v2",
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_all_providers",
        "get_available_providers",
        "get_build_info",
        "get_device",
        "get_ep_devices",
        "get_version_string",
        "has_collective_ops",
        "preload_dlls",
        "print_debug_info",
        "register_execution_provider_library",
        "set_global_thread_pool_sizes",
        "set_seed",
        "unregister_execution_provider_library",
    ),
    ".run.api.hardware": ("OrtArenaCfg", "OrtDevice", "OrtEpDevice", "OrtHardwareDevice", "OrtMemoryInfo"),
    ".run.api.log_callback": ("set_default_logger_callback",),
    ".run.api.logs": ("set_default_logger_severity", "set_default_logger_verbosity"),
    ".run.api.run_options": ("RunOptions",),
    ".run.api.session_binding": ("SessionIOBinding",),
    ".run.api.session_options": ("SessionOptions",),
    ".run.api.unsupported": (
        "AdapterFormat",
        "LoraAdapter",
        "ModelCompiler",
        "ModelPackage",
        "ModelPackageComponentContext",
        "ModelPackageContext",
        "ModelPackageOptions",
        "OrtEpContextData",
        "OrtEpContextDataBuffer",
        "OrtExternalInitializerInfo",
        "OrtSyncStream",
        "SparseTensor",
    ),
    ".run.api.binding": ("IOBinding",),
    ".run.report.explain": ("Explanation",),
    ".run.api.ortvalue": ("OrtValue",),
    ".run.api.state": ("State",),
    ".run.model.ports": ("ModelMetadata", "NodeArg"),
    ".run.api.session": ("InferenceSession",),
    ".run.queue.infer_queue": ("InferQueue",),
    ".run.queue.job": ("Job",),
    ".run.execute.trace": ("Timing",),
}
_LATER = {name: (module, name) for module, names in _MODULES.items() for name in names}
_LATER["compile"] = (".run.api.compile", "compile_model")
_SUBMODULES = ("backend", "capi", "ray")  # `from opalite import *` leaves out ray, which is another's name, too


warn_of_unknown_names()


def __getattr__(name: str) -> Any:
    if name in ("__version__", "version"):
        value: Any = _version()
    elif name in _LATER:
        from .cl.beside_runs import planning

        module, attribute = _LATER[name]
        try:
            with planning():  # thousands of objects, none of which is garbage
                value = getattr(import_module(module, __name__), attribute)
        except ImportError as e:
            from .cl.advice import loader_advice

            if (advice := loader_advice(e)) is not None:
                raise NoDeviceError(advice) from e
            raise
    elif name in _SUBMODULES:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'opalite' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("opalite")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"
