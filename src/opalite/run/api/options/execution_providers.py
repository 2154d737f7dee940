"""Execution providers: maps onnxruntime's provider names to OpenCL devices.

'OpenCLExecutionProvider' is Opalite's own: the default device, or the device of its options. 'CPUExecutionProvider',
first in the list, means an OpenCL CPU device. GPU providers ('CUDAExecutionProvider') mean a GPU of that vendor, else
any GPU; without a GPU the next provider in the list is used, as in onnxruntime.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from ....errors import OptionError
from ....ir.device.device_info import DeviceInfo
from ....lazy_dataclass import dataclass
from .ort_enums import OrtExecutionProviderDevicePolicy

OPENCL = "OpenCLExecutionProvider"
CPU = "CPUExecutionProvider"
AVAILABLE = (OPENCL, CPU)

# Words of vendor or device names by GPU provider; () for any GPU.
_GPU_PROVIDERS: dict[str, tuple[str, ...]] = {
    "CUDAExecutionProvider": ("nvidia",),
    "TensorrtExecutionProvider": ("nvidia",),
    "NvTensorRTRTXExecutionProvider": ("nvidia",),
    "ROCMExecutionProvider": ("amd", "advanced micro"),
    "MIGraphXExecutionProvider": ("amd", "advanced micro"),
    "OpenVINOExecutionProvider": ("intel",),
    "QNNExecutionProvider": ("qualcomm", "adreno"),
    "CoreMLExecutionProvider": ("apple",),
    "DmlExecutionProvider": (),
    "WebGpuExecutionProvider": (),
    "WebNNExecutionProvider": (),
    "JsExecutionProvider": (),
}
# onnxruntime's other CPU providers.
_CPU_PROVIDERS = ("DnnlExecutionProvider", "XnnpackExecutionProvider", "ACLExecutionProvider", "AzureExecutionProvider")

OPTIONS = ("device", "device_id", "precision", "tolerance", "memory", "tune", "strict", "performance", "priority")
"""Options of 'OpenCLExecutionProvider'."""

ListDevices = Callable[[], Sequence[DeviceInfo]]
ProviderRequest = tuple[list[str], list[dict[str, str]]]


@dataclass
class DeviceChoice:
    """The device request, InferenceSession's options, and the provider names to report."""

    device: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: [OPENCL, CPU])


def check_providers(providers: Any, provider_options: Any, available: Sequence[str] = AVAILABLE) -> ProviderRequest:
    """Distinct names and their options as texts, in order. Raises OptionError (a ValueError) for malformed arguments.

    Warns of names that are not available and of duplicates, as onnxruntime does.
    """
    if providers is None:
        return [], []
    if isinstance(providers, str):
        warnings.warn(f"'providers' should be a list: [{providers!r}] is taken", stacklevel=4)
        providers = [providers]
    if not isinstance(providers, Sequence):
        raise OptionError(f"'providers' should be a sequence of names or (name, options), got {providers!r}")
    if provider_options is not None:
        pairs = _pair(providers, provider_options)
    else:
        pairs = [_split(p) for p in providers]
    found: dict[str, dict[str, str]] = {}
    for name, options in pairs:
        if name not in available:
            listed = ", ".join(available)
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. Available providers: '{listed}'"
                + _meaning(name),
                stacklevel=4,
            )
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=4)
            continue
        found[name] = {str(k): str(v) for k, v in options.items()}
    return list(found), list(found.values())


def _pair(providers: Sequence[Any], options: Any) -> list[tuple[str, dict[Any, Any]]]:
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise OptionError(f"'provider_options' should be a sequence of dicts, got {options!r}")
    if len(providers) != len(options):
        raise OptionError(
            f"'providers' and 'provider_options' should be the same length if both are given; got {len(providers)} and "
            f"{len(options)}"
        )
    if not all(isinstance(p, str) for p in providers):
        raise OptionError("Only string values for 'providers' are supported if 'provider_options' is given.")
    if not all(isinstance(o, dict) for o in options):
        raise OptionError("'provider_options' values must be dicts.")
    return list(zip(providers, options, strict=True))


def _split(provider: Any) -> tuple[str, dict[Any, Any]]:
    if isinstance(provider, str):
        return provider, {}
    if isinstance(provider, tuple) and len(provider) == 2:
        name, options = provider
        if isinstance(name, str) and isinstance(options, dict):
            return name, options
    raise OptionError(f"'providers' values must be either strings or (string, dict) tuples; got {provider!r}")


def _meaning(name: str) -> str:
    if name in _GPU_PROVIDERS:
        return f". '{OPENCL}' takes its place where there is a GPU"
    return f". '{CPU}' takes its place" if name in _CPU_PROVIDERS else ""


def is_provider(name: str) -> bool:
    """Whether onnxruntime or Opalite knows the provider."""
    return name in AVAILABLE or name in _GPU_PROVIDERS or name in _CPU_PROVIDERS


def check_provider_names(names: Sequence[str]) -> None:
    """Raise OptionError (a RuntimeError) for a name that neither onnxruntime nor Opalite knows."""
    for name in names:
        if not is_provider(name):
            raise OptionError(f"Unknown Provider Type: {name}; choose {' or '.join(AVAILABLE)}")


def choose(requested: ProviderRequest, default: str | None, list_devices: ListDevices) -> DeviceChoice:
    """Choose a device of this machine for the requested providers. Raises OptionError for invalid options.

    default: the device of OPALITE_DEVICE, which overrides all providers but OpenCL's.
    """
    for name, options in zip(*requested, strict=True):
        if name == OPENCL:
            return _own(options, list_devices)
        if default is not None and is_provider(name):
            return DeviceChoice()
        if name in _GPU_PROVIDERS:
            found = _gpu(name, options, list_devices())
            if found is not None:
                return found
        elif name == CPU or name in _CPU_PROVIDERS:
            return _cpu(list_devices())
    return DeviceChoice()


def _own(options: dict[str, str], list_devices: ListDevices) -> DeviceChoice:
    unknown = [k for k in options if k not in OPTIONS]
    if unknown:
        raise OptionError(f"{OPENCL} has no option {unknown[0]!r}; choose {', '.join(OPTIONS)}")
    rest = {k: v for k, v in options.items() if k not in ("device", "device_id")}
    device = options.get("device")
    if device is None and "device_id" in options:
        device = _numbered(OPENCL, options["device_id"], list_devices())
    return DeviceChoice(device, rest)


def _gpu(name: str, options: dict[str, str], devices: Sequence[DeviceInfo]) -> DeviceChoice | None:
    gpus = [d for d in devices if not d.on_host]
    words = _GPU_PROVIDERS[name]
    own = [d for d in gpus if any(w in f"{d.vendor} {d.name}".lower() for w in words)]
    fitting = own or gpus
    if not fitting:
        return None
    if "device_id" in options:
        return DeviceChoice(_numbered(name, options["device_id"], fitting))
    # The best GPU of the vendor as `device=` chooses it, or the default GPU.
    return DeviceChoice(words[0] if own and len(gpus) > 1 else "gpu")


def _cpu(devices: Sequence[DeviceInfo]) -> DeviceChoice:
    if any(d.on_host for d in devices):
        return DeviceChoice("cpu", names=[CPU])
    warnings.warn(
        f"'{CPU}' is requested, but no OpenCL CPU device is installed: the session runs on the default device. "
        "`pip install pocl-binary-distribution` adds a CPU device",
        stacklevel=5,
    )
    return DeviceChoice()


def _numbered(name: str, text: str, devices: Sequence[DeviceInfo]) -> str:
    """The id of the device with number `text`."""
    if not text.isdigit() or int(text) >= len(devices):
        listed = ", ".join(f"{i}: {d.id}" for i, d in enumerate(devices))
        raise OptionError(f"{name} has no device_id {text!r}; the devices are {listed}")
    return devices[int(text)].id


def request_by_policy(policy: OrtExecutionProviderDevicePolicy, devices: Sequence[DeviceInfo]) -> str | None:
    """The device request of a selection policy; None selects the default device."""
    wanted = {
        OrtExecutionProviderDevicePolicy.PREFER_CPU: "cpu",
        OrtExecutionProviderDevicePolicy.MIN_OVERALL_POWER: "cpu",
        OrtExecutionProviderDevicePolicy.PREFER_GPU: "gpu",
    }.get(policy)
    kinds = {d.kind for d in devices}
    return wanted if wanted in kinds else None
