"""The classes of onnxruntime's Python layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..run.api.binding import IOBinding
from ..run.api.enums import OrtDeviceVendorId
from ..run.api.environment import copy_tensors
from ..run.api.hardware import OrtDevice
from ..run.api.ortvalue import OrtValue
from ..run.api.providers import check_providers
from ..run.api.session import InferenceSession
from ..run.api.session_api import SessionApi as Session
from ..run.api.unsupported import AdapterFormat, ModelCompiler, SparseTensor


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """Names in order, each once, and their options as texts. OptionError (a ValueError) for another form."""
    return check_providers(providers, provider_options, available_provider_names)


__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "SparseTensor",
    "check_and_normalize_provider_args",
    "copy_tensors",
]
