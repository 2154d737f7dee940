"""The names of onnxruntime's Python layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..run.api.options.execution_providers import check_providers
from ..run.api.options.ort_devices import OrtDevice
from ..run.api.options.ort_enums import OrtDeviceVendorId
from ..run.api.session.inference_session import InferenceSession
from ..run.api.session.module_functions import copy_tensors
from ..run.api.session.session_queries import SessionApi as Session
from ..run.api.session.unsupported_api import AdapterFormat, ModelCompiler, SparseTensor
from ..run.api.values.io_binding import IOBinding
from ..run.api.values.ort_value import OrtValue


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """Distinct names and their options as texts, in order. Raises OptionError (a ValueError) for other forms."""
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
