"""Server: the inference engine behind the HTTP and gRPC fronts, with models in worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ..wire.infer_messages import IndexEntry, InferRequest, InferResponse, ModelMetadata, Statistics
from ..wire.memory_budget import MemoryBudget, default_limit
from ..wire.serve_errors import NotFound, NotReady, ServeError, Unsupported
from .helper_process import HelperProcess
from .model_config import ServerSettings
from .model_repository import Repository
from .model_versions import Model
from .served_version import ServedVersion
from .server_observer import ServerObserver, ServerObservers
from .spare_worker import SpareWorker
from .system_shared_memory import SystemSharedMemory
from .telemetry_settings import TelemetrySettings
from .worker_pool import Device, find_devices

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "generate",
    "logging",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
    "system_shared_memory",
    "trace",
)
_CONCURRENT_LOADS = 2

_log = logging.getLogger("opalite.serve")


class Server:
    """Serves the models of a repository. All calls are made on one event loop.

    memory: of requests, which the fronts count. helper: for functions that would stop the event loop.
    """

    def __init__(
        self,
        settings: ServerSettings,
        observer: ServerObserver | None = None,
        telemetry: TelemetrySettings | None = None,
    ) -> None:
        """telemetry: read by the observer. InputError for missing models."""
        self.settings = settings
        self.telemetry = telemetry or TelemetrySettings()
        self.shared_memory = SystemSharedMemory(settings.shared_memory)
        self.helper, self.spare = HelperProcess(), SpareWorker(settings.spare_worker)
        self.memory = MemoryBudget(settings.request_memory_bytes or default_limit())
        self.observers = ServerObservers([] if observer is None else [observer])
        self._repository = Repository(settings)
        self._models: dict[str, Model] = {}
        self._devices: tuple[Device, ...] = ()
        self.live = self._loading = False  # live: started and not closed, but models may still be loading
        self._poller: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load all models; return when each is ready or failed (see `index`)."""
        self.live = self._loading = True
        names = self._repository.names()
        if names and not self._devices:
            asked = self.settings.devices
            is_own = not self.settings.session_factory
            self._devices = await asyncio.to_thread(find_devices, asked) if is_own else (Device("cpu", True),)
        gate = asyncio.Semaphore(_CONCURRENT_LOADS)

        async def load(name: str) -> None:
            async with gate:
                try:
                    await self._load(name, None)
                except ServeError as e:
                    _log.error("model '%s' is not served: %s", name, e)

        await asyncio.gather(*(load(name) for name in names))
        self._loading = False
        if self.settings.model_control == "poll":
            self._poller = asyncio.create_task(self._poll())

    async def close(self, grace_s: float) -> None:
        """Refuse new requests, finish accepted ones within `grace_s`, then end the workers."""
        self.live = False
        end = time.monotonic() + grace_s
        if self._poller is not None:
            self._poller.cancel()
        await asyncio.gather(*(m.close(end) for m in self._models.values()), return_exceptions=True)
        self.helper.close()
        await self.spare.close()

    @property
    def ready(self) -> bool:
        """Whether the server has loaded its models; with `strict_readiness`, whether all of them are ready."""
        models = self._models.values()
        all_ready = not self.settings.strict_readiness or all(m.is_ready for m in models)
        return self.live and not self._loading and all_ready

    @property
    def devices(self) -> tuple[str, ...]:
        """The default devices of models; () before `start`."""
        return tuple(d.id for d in self._devices)

    def metadata(self) -> dict[str, Any]:
        """Name, version and extensions of the server, as JSON."""
        from ... import __version__

        return {"name": "opalite", "version": __version__, "extensions": EXTENSIONS}

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether requests for a model are accepted; False for unknown models."""
        try:
            return self._find(name, version).is_ready
        except ServeError:
            return False

    def model_metadata(self, name: str, version: str = "") -> ModelMetadata:
        """Inputs and outputs of a model. NotFound, NotReady."""
        found = self._find(name, version)
        return found.metadata(tuple(map(str, self._models[name].versions)))

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """Triton's ModelConfig as JSON. NotFound, NotReady."""
        from .triton_config import config_to_json

        found = self._find(name, version)
        return config_to_json(found.config, found.metadata((found.version,)), found.is_text)

    def statistics(self, name: str = "", version: str = "") -> tuple[Statistics, ...]:
        """Statistics of a version, of all versions of a model, or of all models. NotFound."""
        if version:
            return (deepcopy(self._find(name, version).statistics),)
        if name:
            self._find(name, "")
        models = [self._models[name]] if name else self._models.values()
        return tuple(deepcopy(v.statistics) for m in models for v in m.versions.values())

    def index(self, ready: bool = False) -> tuple[IndexEntry, ...]:
        """The known versions of the repository, by name and version. ready: only those that are ready."""
        entries = [e for _, m in sorted(self._models.items()) for e in m.entries()]
        return tuple(e for e in entries if e.state == "READY" or not ready)

    async def load(self, name: str, config: Mapping[str, Any] | None = None) -> None:
        """Load or reload a model of the repository. On reload, old workers serve until the new ones are ready.

        config: Triton's ModelConfig as JSON, in place of config.pbtxt, for this load.
        NotFound, Invalid for a configuration that contradicts the model, Unsupported unless clients may load.
        """
        self._check_control()
        await self._load(name, config)

    async def unload(self, name: str) -> None:
        """Refuse new requests for a model, finish accepted ones, end its workers. NotFound, Unsupported."""
        self._check_control()
        model = self._models.get(name)
        if model is None:
            raise self._missing(name)
        await model.unload()

    def admit(self, name: str, version: str = "") -> None:
        """Admit a request before its body is read. NotFound, NotReady, Busy."""
        self._route(name, version).admit()

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run a model. Raises a ServeError. Cancelling the task removes the request from the queue."""
        return await self._route(request.model, request.version).infer(request)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse]:
        """The responses of a text model, one for each piece; other models give one. The last is marked as final.

        `aclose` ends the text.
        """
        found = self._route(request.model, request.version)
        if not found.is_text:
            answer = await found.infer(request)
            yield replace(answer, parameters={**answer.parameters, "triton_final_response": True})
            return
        async with contextlib.aclosing(found.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    def workers(self) -> dict[int, tuple[str, str]]:
        return {
            pid: (v.name, v.version) for m in self._models.values() for v in m.versions.values() for pid in v.pool.pids
        }

    def _route(self, name: str, version: str) -> ServedVersion:
        try:
            return self._find(name, version)
        except ServeError as e:
            self.observers.rejected(name if name in self._models else "", "", e.kind)
            raise

    def _find(self, name: str, version: str) -> ServedVersion:
        if not self.live:
            raise NotReady("the server is starting or closing")
        model = self._models.get(name)
        if model is None:
            raise self._missing(name)
        return model.find(version)

    def _missing(self, name: str) -> NotFound:
        return NotFound(f"Request for unknown model: '{name[:255]}' is not found")

    def _check_control(self) -> None:
        if not self.live:
            raise NotReady("the server is starting or closing")
        if self.settings.model_control != "explicit":
            raise Unsupported(
                f"models are not loaded or unloaded by clients: model control is '{self.settings.model_control}'"
            )

    async def _load(self, name: str, config: Mapping[str, Any] | None) -> None:
        try:
            found = await asyncio.to_thread(self._repository.find, name, config)
            chosen = found.chosen
        except NotFound:
            raise
        except ServeError as e:
            self._models.setdefault(name, self._model(name)).refuse(str(e))
            raise
        _log.info("loading model '%s', version %s", name, ", ".join(str(s.version) for s in chosen))
        model = self._models.setdefault(name, self._model(name))
        for path in found.ignored:
            _log.warning("model '%s': %s of its configuration has no effect", name, path)
        await model.load(found)

    def _model(self, name: str) -> Model:
        return Model(name, self.settings, self._devices, self.observers, self.spare.take)

    async def _poll(self) -> None:
        """Poll the repository: load new and changed models, unload removed ones."""
        while True:
            await asyncio.sleep(self.settings.poll_s)
            names = await asyncio.to_thread(self._repository.names)
            for name in {*names, *self._models}:
                model = self._models.get(name)
                with contextlib.suppress(ServeError):
                    if name not in names:
                        if model is not None and model.versions:
                            await model.unload()
                        continue
                    found = await asyncio.to_thread(self._repository.find, name)
                    if model is None or model.differs(found):
                        await self._load(name, None)
