"""Control: shared memory regions, log settings and trace settings over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..proto.message_classes import message_class
from ..wire.serve_errors import NO_CUDA_MEMORY, Unsupported
from .call_context import client_host

if TYPE_CHECKING:
    from ..engine.inference_server import Server
    from ..engine.system_shared_memory import ClientRegions
    from ..wire.memory_budget import Account

Fields = dict[str, Any]
_Region: Any = message_class("inference.SystemSharedMemoryStatusResponse.RegionStatus")
_LogValue: Any = message_class("inference.LogSettingsResponse.SettingValue")
_TraceValue: Any = message_class("inference.TraceSettingResponse.SettingValue")
_LOG_FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}


class Control:
    """Each call takes a request's message and context, and returns the fields of the answer."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def calls(self) -> Mapping[str, Callable[[Any, Any], Fields]]:
        return {
            "SystemSharedMemoryStatus": self._region_status,
            "SystemSharedMemoryRegister": self._register_region,
            "SystemSharedMemoryUnregister": self._unregister_region,
            "CudaSharedMemoryStatus": lambda request, context: {},
            "CudaSharedMemoryRegister": _refuse_cuda,
            "CudaSharedMemoryUnregister": lambda request, context: {},
            "LogSettings": self._log_settings,
            "TraceSetting": self._trace_settings,
        }

    def regions_of(self, context: Any, account: Account | None = None) -> ClientRegions:
        """The shared memory regions as the client of a call may use them. account: of a request's memory."""
        return self._server.shared_memory.of(client_host(context), account)

    def _region_status(self, request: Any, context: Any) -> Fields:
        return {"regions": {r["name"]: _Region(**r) for r in self.regions_of(context).status(request.name)}}

    def _register_region(self, request: Any, context: Any) -> Fields:
        self.regions_of(context).register(request.name, request.key, request.offset, request.byte_size)
        return {}

    def _unregister_region(self, request: Any, context: Any) -> Fields:
        self.regions_of(context).unregister(request.name)
        return {}

    def _log_settings(self, request: Any, context: Any) -> Fields:
        telemetry = self._server.telemetry
        given = {name: (value, value.WhichOneof("parameter_choice")) for name, value in request.settings.items()}
        telemetry.update_log({name: getattr(value, field) for name, (value, field) in given.items() if field})
        return {"settings": {name: _LogValue(**{_LOG_FIELDS[type(v)]: v}) for name, v in telemetry.log().items()}}

    def _trace_settings(self, request: Any, context: Any) -> Fields:
        telemetry = self._server.telemetry
        if request.model_name:
            self._server.model_metadata(request.model_name)
        changes: dict[str, Any] = {}
        for name, setting in request.settings.items():
            values = list(setting.value)  # none: the default
            changes[name] = values if name == "trace_level" and values else values[0] if values else None
        telemetry.update_tracing(changes, request.model_name)
        told = telemetry.tracing().items()
        return {"settings": {n: _TraceValue(value=v if isinstance(v, list) else [v]) for n, v in told}}


def _refuse_cuda(request: Any, context: Any) -> Fields:
    raise Unsupported(NO_CUDA_MEMORY)
