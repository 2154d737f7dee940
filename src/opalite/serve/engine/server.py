"""Server: the models of a repository in worker processes - what the fronts that speak a protocol call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from ..wire.failures import NotFound, NotReady, Unsupported
from ..wire.messages import (
    IndexEntry,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ServerMetadata,
    Statistics,
)
from .config import ServerSettings
from .watcher import Watcher, Watchers

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "generate",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "sequence",
    "statistics",
)


class Server:
    """Lives on one event loop: every call is made there."""

    def __init__(self, settings: ServerSettings, watcher: Watcher | None = None) -> None:
        self.settings = settings
        self.watchers = Watchers([] if watcher is None else [watcher])
        self._live = False

    async def start(self) -> None:
        """Load all models; returns when each is served, or has failed, as `index` says."""
        self._live = True

    async def close(self, grace_s: float) -> None:
        """Refuse what is new, finish what was accepted within `grace_s`, then end the workers."""
        self._live = False

    @property
    def live(self) -> bool:
        """Whether it was started and not closed."""
        return self._live

    @property
    def ready(self) -> bool:
        """Whether all models that should be served are."""
        return self._live

    def metadata(self) -> ServerMetadata:
        """Name, version and extensions."""
        from ... import __version__

        return ServerMetadata("opalite", __version__, EXTENSIONS)

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether requests for it are taken; False for models that are not known."""
        return False

    def model_metadata(self, name: str, version: str = "") -> ModelMetadata:
        """Inputs and outputs. NotFound, NotReady."""
        raise self._missing(name)

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """Triton's ModelConfig, as its JSON form. NotFound, NotReady."""
        raise self._missing(name)

    def statistics(self, name: str = "", version: str = "") -> tuple[Statistics, ...]:
        """Of a version, of all versions of a model, or of everything that is served. NotFound."""
        if name:
            raise self._missing(name)
        return ()

    def index(self, ready: bool = False) -> tuple[IndexEntry, ...]:
        """All versions in the repository, or those that are ready."""
        return ()

    async def load(self, name: str, config: Mapping[str, Any] | None = None) -> None:
        """Load a model of the repository, or load it anew: requests go to the old workers until the new ones serve.

        config: Triton's ModelConfig as JSON, for this load, in place of config.pbtxt.
        NotFound, Invalid for a configuration that does not fit, Unsupported where clients may not.
        """
        raise self._missing(name)

    async def unload(self, name: str) -> None:
        """Take no further requests for a model, and end its workers when they have answered. NotFound, Unsupported."""
        raise self._missing(name)

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run a model. Cancelling the task takes the request out of the queue. Raises a ServeError."""
        raise self._missing(request.model)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        """The responses of a model that writes text, a piece each; other models give one. `aclose` ends the text."""
        yield await self.infer(request)

    def _missing(self, name: str) -> NotFound | NotReady | Unsupported:
        if not self._live:
            return NotReady("the server is not running")
        return NotFound(f"Request for unknown model: '{name}' is not found")
