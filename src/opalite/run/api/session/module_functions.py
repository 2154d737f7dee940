"""The functions of onnxruntime's module: providers, devices, versions, and settings of all sessions."""

from __future__ import annotations

import operator
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ....cl.device.enumerate_devices import find_device, list_all
from ....errors import InputTypeError, OptionError, UnsupportedApiError
from ..diagnostics.ort_logging import warn_once
from ..options.execution_providers import AVAILABLE
from ..options.ort_devices import OrtEpDevice, describe_ep_device
from ..values.ort_value import OrtValue


def get_available_providers() -> list[str]:
    """The execution providers of sessions: OpenCL's, and the CPU's for an OpenCL CPU device."""
    return list(AVAILABLE)


get_all_providers = get_available_providers


def get_device() -> str:
    """'GPU' or 'CPU', the kind of the default device. Raises NoDeviceError if no device is found."""
    return "CPU" if find_device().info.on_host else "GPU"


def get_ep_devices() -> list[OrtEpDevice]:
    """All OpenCL devices."""
    text = get_version_string()
    return [describe_ep_device(d.info, i, text) for i, d in enumerate(list_all().devices)]


def get_version_string() -> str:
    """Opalite's version, not onnxruntime's."""
    try:
        return version("opalite")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"


def get_build_info() -> str:
    """One line about this package."""
    return f"Build Info: opalite {get_version_string()}, Python {platform.python_version()}, {platform.platform()}"


def print_debug_info() -> None:
    """Print versions and devices; `opalite doctor` says more."""
    print(get_build_info())
    for package in ("numpy", "onnx", "pyopencl", "pocl-binary-distribution"):
        try:
            print(f"{package}=={version(package)}")
        except PackageNotFoundError:
            print(f"{package} not installed")
    for found in list_all().devices:
        print(found)


def has_collective_ops() -> bool:
    """False: operators across processes are not offered."""
    return False


def set_seed(seed: int) -> None:
    """Set the seed of random operators that have none, for models loaded after this call."""
    from ....ir.rng_seed import set_base

    try:
        set_base(operator.index(seed))
    except TypeError:
        raise InputTypeError(f"a seed is a whole number, got {seed!r}") from None


def set_global_thread_pool_sizes(intra_op_num_threads: int, inter_op_num_threads: int) -> None:
    """Accepted without effect: the OpenCL driver decides the number of threads."""
    warn_once(
        "set_global_thread_pool_sizes",
        "set_global_thread_pool_sizes has no effect: the OpenCL driver decides; POCL_MAX_PTHREAD_COUNT in the "
        "environment limits PoCL's threads",
    )


def enable_telemetry_events() -> None:
    """Do nothing: Opalite has no telemetry."""


disable_telemetry_events = enable_telemetry_events


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None) -> None:
    """Do nothing: OpenCL's loader finds the drivers."""


def create_and_register_allocator(memory_info: Any, arena_cfg: Any = None) -> None:
    """Accepted without effect: the memory planner allocates all memory."""
    warn_once("allocator", "registered allocators have no effect: the memory planner allocates all memory")


def create_and_register_allocator_v2(provider: str, memory_info: Any, options: Any, arena_cfg: Any = None) -> None:
    """Accepted without effect: the memory planner allocates all memory."""
    create_and_register_allocator(memory_info, arena_cfg)


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Raise UnsupportedApiError: onnxruntime's providers cannot be loaded."""
    raise UnsupportedApiError(
        f"'{library_path}' cannot be loaded: install the device's OpenCL driver, and `opalite devices` lists it"
    )


def unregister_execution_provider_library(registration_name: str) -> None:
    """Raise OptionError: no library can be registered."""
    raise OptionError(f"no execution provider library is registered as '{registration_name}'")


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy each value of `src` into the value of `dst` at the same index, between host and devices."""
    if len(src) != len(dst):
        raise OptionError(f"copy_tensors takes as many sources as destinations, got {len(src)} and {len(dst)}")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)
