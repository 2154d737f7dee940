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
    PluginError,
    ShapeError,
    TerminatedError,
    UnsupportedApiError,
    UnsupportedOpError,
)
from .knobs import warn_of_unknown_names

if TYPE_CHECKING:
    from . import backend, capi, kernel
    from .cl.device.enumerate_devices import devices
    from .ir.device.device_info import DeviceInfo
    from .llm.embedder import Embedder
    from .llm.generator import Generation, Generator, generate
    from .llm.token_stream import Stream, Streams
    from .onnxruntime import install as install_as_onnxruntime
    from .run.api.caches.model_state import State
    from .run.api.diagnostics.node_assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph
    from .run.api.diagnostics.ort_logging import (
        set_default_logger_callback,
        set_default_logger_severity,
        set_default_logger_verbosity,
    )
    from .run.api.options.ort_devices import OrtArenaCfg, OrtDevice, OrtEpDevice, OrtHardwareDevice, OrtMemoryInfo
    from .run.api.options.ort_enums import (
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
    from .run.api.options.run_options import RunOptions
    from .run.api.options.session_options import SessionOptions
    from .run.api.session.compile_bundle import compile_model as compile
    from .run.api.session.inference_session import InferenceSession
    from .run.api.session.module_functions import (
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
    from .run.api.session.unsupported_api import (
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
    from .run.api.values.io_binding import IOBinding, SessionIOBinding
    from .run.api.values.ort_value import OrtValue
    from .run.execute.run_trace import Timing
    from .run.model.model_inputs_outputs import ModelMetadata, NodeArg
    from .run.queue.infer_queue import InferQueue, Job
    from .run.report.device_plan import DevicePlan, plan_for_device
    from .run.report.explanation import Explanation

    __version__: str
    version: str

package_name = "opalite"
cuda_version = ""
"""The CUDA version of the build in onnxruntime's API; '' because there is none."""

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
    "DevicePlan",
    "Embedder",
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
    "PluginError",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "ShapeError",
    "SparseTensor",
    "State",
    "Stream",
    "Streams",
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
    "install_as_onnxruntime",
    "kernel",
    "package_name",
    "plan_for_device",
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

# Modules imported at first use: commands that need no kernels start in a fraction of the time.
_MODULES = {
    ".cl.device.enumerate_devices": "devices",
    ".ir.device.device_info": "DeviceInfo",
    ".llm.embedder": "Embedder",
    ".llm.generator": "Generation Generator generate",
    ".llm.token_stream": "Stream Streams",
    ".run.api.diagnostics.node_assignment": "OrtEpAssignedNode OrtEpAssignedSubgraph",
    ".run.api.options.ort_enums": (
        "ExecutionMode ExecutionOrder GraphOptimizationLevel ModelPackageWriteMode OrtAllocatorType "
        "OrtCompileApiFlags OrtDeviceMemoryType OrtDeviceVendorId OrtExecutionProviderDevicePolicy "
        "OrtHardwareDeviceType OrtMemType OrtMemoryInfoDeviceType OrtSparseFormat"
    ),
    ".run.api.session.module_functions": (
        "copy_tensors create_and_register_allocator create_and_register_allocator_v2 disable_telemetry_events "
        "enable_telemetry_events get_all_providers get_available_providers get_build_info get_device "
        "get_ep_devices get_version_string has_collective_ops preload_dlls print_debug_info "
        "register_execution_provider_library set_global_thread_pool_sizes set_seed "
        "unregister_execution_provider_library"
    ),
    ".run.api.options.ort_devices": "OrtArenaCfg OrtDevice OrtEpDevice OrtHardwareDevice OrtMemoryInfo",
    ".run.api.diagnostics.ort_logging": (
        "set_default_logger_callback set_default_logger_severity set_default_logger_verbosity"
    ),
    ".run.api.options.run_options": "RunOptions",
    ".run.api.options.session_options": "SessionOptions",
    ".run.api.session.unsupported_api": (
        "AdapterFormat LoraAdapter ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext "
        "ModelPackageOptions OrtEpContextData OrtEpContextDataBuffer OrtExternalInitializerInfo OrtSyncStream "
        "SparseTensor"
    ),
    ".run.api.values.io_binding": "IOBinding SessionIOBinding",
    ".run.report.device_plan": "DevicePlan plan_for_device",
    ".run.report.explanation": "Explanation",
    ".run.api.values.ort_value": "OrtValue",
    ".run.api.caches.model_state": "State",
    ".run.model.model_inputs_outputs": "ModelMetadata NodeArg",
    ".run.api.session.inference_session": "InferenceSession",
    ".run.queue.infer_queue": "InferQueue Job",
    ".run.execute.run_trace": "Timing",
}
_LATER = {name: (module, name) for module, names in _MODULES.items() for name in names.split()}
_LATER["compile"] = (".run.api.session.compile_bundle", "compile_model")
_LATER["install_as_onnxruntime"] = (".onnxruntime", "install")
# `from opalite import *` omits ray, which may be the package ray, and other engines' interfaces.
_SUBMODULES = ("backend", "capi", "kernel", "lite", "paddle_inference", "ray")


warn_of_unknown_names()


def __getattr__(name: str) -> Any:
    if name in ("__version__", "version"):
        value: Any = _version()
    elif name in _LATER:
        from .cl.programs.background_throttle import background_planning

        module, attribute = _LATER[name]
        try:
            with background_planning():  # thousands of objects, none of which is garbage
                value = getattr(import_module(module, __name__), attribute)
        except ImportError as e:
            from .cl.device.install_advice import loader_advice

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
