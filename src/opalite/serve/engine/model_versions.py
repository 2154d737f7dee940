"""Model: the served versions of one model, their loading and replacement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..wire.infer_messages import IndexEntry, State
from ..wire.serve_errors import Internal, NotFound, NotReady, ServeError
from .model_config import ServerSettings
from .model_repository import ModelSource, RepositoryModel
from .served_version import ServedVersion
from .server_observer import ServerObservers
from .worker_pool import Device, find_devices
from .worker_process import WorkerProcess


class Model:
    """Loads and unloads versions, one operation at a time. Replaced versions finish their requests."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        devices: tuple[Device, ...],
        observers: ServerObservers,
        new_process: Callable[[], WorkerProcess],
    ) -> None:
        self.name = name
        self.versions: dict[int, ServedVersion] = {}  # that take requests, the newest last
        self._settings, self._devices, self._observers, self._new_process = settings, devices, observers, new_process
        self._states: dict[str, tuple[State, str]] = {}
        self._lock = asyncio.Lock()
        self._found: RepositoryModel | None = None
        self._wanted = True
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether all versions that should be served are ready."""
        if not self._wanted:
            return True
        return bool(self.versions) and all(v.is_ready for v in self.versions.values())

    def find(self, version: str) -> ServedVersion:
        """Find a served version; '' is the newest. NotFound, NotReady."""
        if not version and self.versions:
            return self.versions[max(self.versions)]
        if version.isascii() and version.isdigit() and len(version) < 20 and int(version) in self.versions:
            return self.versions[int(version)]
        if version and version not in self._states:
            raise NotFound(f"Request for unknown model: '{self.name}' version {version[:20]!r} is not found")
        known = {n: s for n, s in self._states.items() if not version or n == version}
        reasons = "; ".join(
            f"version {n} is {s.lower()}{': ' + reason if reason else ''}" for n, (s, reason) in known.items()
        )
        raise NotReady(f"Request for model '{self.name}', which is not ready{': ' + reasons if reasons else ''}")

    def entries(self) -> list[IndexEntry]:
        states = sorted(self._states.items(), key=lambda item: int(item[0] or 0))
        return [IndexEntry(self.name, version, *state) for version, state in states]

    def differs(self, found: RepositoryModel) -> bool:
        """Whether files or configuration differ from the last load."""
        return self._found is None or found.chosen != self._found.chosen or found.config != self._found.config

    def refuse(self, reason: str) -> None:
        if not self.versions:
            self._set("", "UNAVAILABLE", reason)

    async def load(self, found: RepositoryModel) -> None:
        """Load the versions selected by the configuration, also those already served.

        Raises the first ServeError; the old versions then continue.
        """
        async with self._lock:
            self._found, self._wanted = found, True
            self._states.pop("", None)
            for source in found.sources:
                if source not in found.chosen and source.version not in self.versions:
                    self._set(str(source.version), "UNAVAILABLE", "not chosen by the version policy")
            started = await asyncio.gather(*(self._start(s, found) for s in found.chosen), return_exceptions=True)
            made = {v.source.version: v for v in started if isinstance(v, ServedVersion)}
            failures = [e for e in started if isinstance(e, BaseException)]
            if failures and self.versions:
                self._end(list(made.values()))
                for number in self.versions:
                    self._set(str(number), "READY", "")
            else:
                old, self.versions = self.versions, dict(sorted(made.items()))
                for number in made:
                    self._set(str(number), "READY", "")
                for number in old.keys() - made.keys():
                    self._set(str(number), "UNAVAILABLE", "not chosen by the version policy")
                self._end(list(old.values()))
            if failures:
                raise failures[0]

    async def unload(self) -> None:
        """Refuse new requests; accepted ones finish in the background."""
        async with self._lock:
            self._wanted = False
            old, self.versions = self.versions, {}
            self._end(list(old.values()), "UNLOADING")

    async def close(self, end: float) -> None:
        """Finish accepted requests until `end` (monotonic clock), then end the workers."""
        for task in self._ending:
            task.cancel()
        versions = list(self.versions.values())
        await asyncio.gather(*(v.drain(max(end - time.monotonic(), 0.0)) for v in versions))
        await asyncio.gather(*(v.stop() for v in versions))
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _start(self, source: ModelSource, found: RepositoryModel) -> ServedVersion:
        version = str(source.version)
        if source.version not in self.versions:
            self._set(version, "LOADING", "")
        try:
            asked = found.config.devices
            devices = await asyncio.to_thread(find_devices, asked) if asked else self._devices
            made = ServedVersion(source, found.config, self._settings, devices, self._observers, self._new_process)
            await made.start()
        except Exception as e:
            failure = e if isinstance(e, ServeError) else Internal(f"model '{self.name}' cannot be loaded: {e}")
            self._set(version, "UNAVAILABLE", str(failure))
            raise failure from e
        return made

    def _end(self, versions: list[ServedVersion], state: State | None = None) -> None:
        for version in versions:
            if state is not None:
                self._set(version.version, state, "")
            task = asyncio.create_task(self._drain(version, state is not None))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _drain(self, version: ServedVersion, tells: bool) -> None:
        try:
            await version.drain(None)
        finally:
            await version.stop()
            if tells and version.source.version not in self.versions:
                self._set(version.version, "UNAVAILABLE", "unloaded")

    def _set(self, version: str, state: State, reason: str) -> None:
        self._states[version] = (state, reason)
        self._observers.model(self.name, version, state, reason)
