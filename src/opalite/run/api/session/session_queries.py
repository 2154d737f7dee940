"""SessionApi: the methods of onnxruntime's session that query it, or run it in another form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import UnsupportedApiError
from ...model.model_inputs_outputs import ModelMetadata, NodeArg
from ..options.execution_providers import OPENCL, check_provider_names, check_providers
from ..options.session_options import SessionOptions, copy_options
from ..values.ort_value import OrtValue
from .session_runs import SessionRuns

if TYPE_CHECKING:  # modules that few sessions need are imported at first use
    from ..options.ort_devices import OrtEpDevice, OrtMemoryInfo


class SessionApi(SessionRuns):
    """A session with the queries and settings of onnxruntime's class."""

    # The model

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that the caller feeds, in the model's order."""
        return list(self._model.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs in the model's order."""
        return list(self._model.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that are also inputs: a feed replaces the stored value."""
        return list(self._model.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """The model's producer, description and custom metadata."""
        return self._model.meta

    # Options and providers

    def get_session_options(self) -> SessionOptions:
        """A copy of the session's options."""
        return copy_options(self._arguments["sess_options"])

    def get_providers(self) -> list[str]:
        """The session's providers: OpenCL's and the CPU's, or the CPU's alone if an OpenCL CPU device was requested."""
        return list(self._choice.names)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options by provider; the options of OpenCL's provider include the device id."""
        own = {"device": self.device.id, **self._choice.options}
        return {name: own if name == OPENCL else {} for name in self._choice.names}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Load the model again for other providers, which override `device=`. None selects the default device.

        Raises OptionError (a RuntimeError) for an unknown provider, and leaves the session unchanged.
        """
        requested = check_providers(providers, provider_options)
        check_provider_names(requested[0])
        with self._lock:
            before = dict(self._arguments)
            self._arguments.update(providers=providers, provider_options=provider_options, device=None)
            try:
                self._start(requested)
            except BaseException:
                self._arguments = before
                raise

    def enable_fallback(self) -> None:
        """Accepted without effect: a session never switches its device, it raises an error."""

    def disable_fallback(self) -> None:
        """Accepted without effect: a session never switches its device."""

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The host's memory, once for each input."""
        return [_host_memory() for _ in self._model.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The host's memory, once for each output."""
        return [_host_memory() for _ in self._model.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The session's device, once for each input."""
        from ..options.ort_devices import describe_ep_device
        from .module_functions import get_version_string

        found = describe_ep_device(self.device, 0, get_version_string())
        return [found for _ in self._model.inputs]

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """An empty list: `opalite tune --export` writes tuning results."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Raise UnsupportedApiError for any result: onnxruntime's results do not concern OpenCL kernels."""
        if results:
            raise UnsupportedApiError("onnxruntime's tuning results are not read; tune with session.tune(feeds)")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Raise UnsupportedApiError for any option: the options of an open session cannot change."""
        if options:
            raise UnsupportedApiError(f"no option may change while a session lives, got {dict(options)}; open another")

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Do nothing: the session records and replays launches automatically."""

    # Profiling

    def end_profiling(self) -> str:
        """Write the profile and stop recording; returns the file's name, '' if `enable_profiling` was not set."""
        with self._lock:
            profiler, self._profiler = self._profiler, None
            self._dispatcher.forget_routes()
            return profiler.write() if profiler is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """The value of time.monotonic_ns() at the begin of recording, 0 without recording."""
        return self._profiler.start_ns if self._profiler is not None else 0

    # Values

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Create a value in the memory of the session's device, or of the host for 'cpu'."""
        where = "cpu" if device_type == "cpu" else self.device
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, where)

    # Private names that code written for onnxruntime reads.

    @property
    def _sess(self) -> Any:
        return self

    @property
    def _model_path(self) -> str | None:
        model = self._arguments["path_or_bytes"]
        return None if isinstance(model, bytes) else os.fspath(model)

    @property
    def _inputs_meta(self) -> list[NodeArg]:
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> list[NodeArg]:
        return self.get_outputs()


def _host_memory() -> OrtMemoryInfo:
    from ..options.ort_devices import OrtMemoryInfo
    from ..options.ort_enums import OrtAllocatorType, OrtMemType

    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
