"""WorkerPool: the worker processes of a model version on its devices, restarted when they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import knobs
from ..wire.serve_errors import Internal, NotReady, ServeError
from .server_observer import ServerObservers, WorkerEvent
from .worker_process import WorkerProcess

if TYPE_CHECKING:
    from .served_version import ServedVersion

_FIND_DEVICES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from opalite.cl.device.enumerate_devices import find_device, list_all
from opalite.errors import OpaliteError
asked = sys.argv[2:]
try:
    found = [find_device(a) for a in asked] or [f for f in list_all().devices if f.usable] or [find_device()]
except OpaliteError as e:
    sys.exit(str(e))
print(json.dumps([[f.info.id, f.info.on_host] for f in found]))
"""
_SHORT_LIFE_S, _LONGEST_PAUSE_S = 2.0, 30.0
_WORKER_BYTES = 128 << 20
_LOOK_S = 0.5
_QUIET_S = 5.0
"""A worker that sent nothing for so long is not ready."""
_STARTS_AT_ONCE = 4
_MAX_FAILED_STARTS = 4
"""Consecutive failed starts after which requests are refused; restarts continue."""


class Device(NamedTuple):
    """An OpenCL device. on_host: a CPU device."""

    id: str
    on_host: bool


def find_devices(asked: Sequence[str]) -> tuple[Device, ...]:
    """The devices named in `asked`, else by OPALITE_DEVICE, else all. NotReady for a missing one.

    A child process enumerates them, since drivers start threads.
    """
    named = tuple(asked) or tuple(filter(None, [knobs.get("OPALITE_DEVICE")]))
    command = [sys.executable, "-P", "-c", _FIND_DEVICES, str(Path(__file__).parents[3]), *named]
    done = subprocess.run(command, env=knobs.environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise NotReady(done.stderr.decode(errors="replace").strip() or "no OpenCL device can be used")
    return tuple(Device(*found) for found in json.loads(done.stdout))


class Placement(NamedTuple):
    """Device and cores of a worker. core_share: (index, count) of its part of the cores; None for all cores."""

    device: str
    core_share: tuple[int, int] | None = None


def placements_on(devices: Sequence[Device], instances: int) -> list[Placement]:
    """`instances` placements on each device; on a CPU they divide the cores."""
    return [
        Placement(d.id, (number, instances) if d.on_host and instances > 1 else None)
        for d in devices
        for number in range(instances)
    ]


def most_instances() -> int:
    """The most workers of a model on a device: twice the cores, at least 8, as far as there is memory for them."""
    most = max(8, 2 * (os.cpu_count() or 1))
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        most = min(most, max(2, free // _WORKER_BYTES))
    return most


class WorkerPool:
    """Starts, supervises and selects workers. ready: workers that accept batches, with device ids."""

    def __init__(
        self,
        owner: ServedVersion,
        placements: Sequence[Placement],
        timeout_s: float,
        observers: ServerObservers,
        new_process: Callable[[], WorkerProcess],
    ) -> None:
        """placements: one for each worker. timeout_s: for a start."""
        self.ready: dict[WorkerProcess, str] = {}
        self._owner, self._placements, self._timeout_s = owner, placements, timeout_s
        self._observers, self._new_process = observers, new_process
        self._all: dict[WorkerProcess, str] = {}
        self._supervisors: list[asyncio.Task[None]] = []
        self._starts = asyncio.Semaphore(_STARTS_AT_ONCE)
        self._failures = 0  # one after the other

    @property
    def is_available(self) -> bool:
        return bool(self.ready) or self._failures < _MAX_FAILED_STARTS

    @property
    def is_ready(self) -> bool:
        """Whether a worker is ready and alive."""
        oldest = time.monotonic() - _QUIET_S
        return any(w.heard > oldest for w in self.ready)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(w.pid for w in self._all)

    def find(self) -> WorkerProcess | None:
        """The worker with capacity that holds the fewest batches."""
        return min((w for w in self.ready if w.has_capacity), key=lambda w: len(w.jobs), default=None)

    async def start(self) -> None:
        """Start all workers; return when each is ready or failed. The first ServeError if all fail."""
        firsts: list[asyncio.Future[None]] = []
        for placement in self._placements:
            first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            firsts.append(first)
            self._supervisors.append(asyncio.create_task(self._supervise(placement, first)))
        self._supervisors.append(asyncio.create_task(self._look()))
        found = await asyncio.gather(*firsts, return_exceptions=True)
        failed = [e for e in found if isinstance(e, BaseException)]
        if len(failed) == len(found):
            await self.stop_all()
            raise failed[0]

    async def stop_all(self) -> None:
        """End all workers; their batches fail."""
        for keeper in self._supervisors:
            keeper.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        await asyncio.gather(*(w.stop() for w in list(self._all)))
        for worker, device in self._all.items():
            self._notify("stopped", device, worker.pid)

    async def _look(self) -> None:
        """Kill ready workers that stopped to answer."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            for worker in list(self.ready):
                if now - last > 2 * _LOOK_S:  # this process was late itself, and has not read what they sent
                    worker.heard = now
                worker.kill_if_silent(now)
            last = now

    async def _supervise(self, placement: Placement, first: asyncio.Future[None]) -> None:
        """Start a worker in one placement, and again whenever it ends."""
        device = placement.device
        while True:
            try:
                async with self._starts:
                    worker = await self._open(placement, is_replacement=first.done())
            except Exception as e:
                failure = e if isinstance(e, ServeError) else Internal(f"a worker cannot be started: {e}")
                self._notify("failed", device, reason=str(failure))
                if not first.done():
                    first.set_exception(failure)
                    return
                self._count(failure)
            else:
                born = time.monotonic()
                if not first.done():
                    first.set_result(None)
                await asyncio.shield(worker.ended)
                self.ready.pop(worker, None)
                self._notify("lost", self._all.pop(worker, device), worker.pid, await worker.describe_end())
                if time.monotonic() - born < _SHORT_LIFE_S:
                    self._count(NotReady("workers end as soon as they start"))
                else:
                    self._failures = 0
            # The first loss restarts immediately, further ones back off exponentially.
            await asyncio.sleep(min(_LONGEST_PAUSE_S, 0.1 * 2**self._failures) if self._failures > 1 else 0)

    async def _open(self, placement: Placement, is_replacement: bool) -> WorkerProcess:
        started = time.monotonic()
        worker = self._new_process()
        self._all[worker] = placement.device
        self._notify("starting", placement.device, worker.pid)
        owner = self._owner
        try:
            open_message = owner.open_message(placement, is_replacement)
            description = await worker.open(open_message, owner.version, self._timeout_s)
            self.ready[worker] = self._all[worker] = description["device"]
            owner.worker_opened(worker, placement, description)
        except BaseException:
            self._all.pop(worker, None)
            self.ready.pop(worker, None)
            worker.kill()
            await worker.stop()
            raise
        self._notify("ready", description["device"], worker.pid, seconds=time.monotonic() - started)
        return worker

    def _count(self, failure: ServeError) -> None:
        self._failures += 1
        if not self.is_available:
            self._owner.no_worker_left(failure)

    def _notify(self, kind: Any, device: str, pid: int = 0, reason: str = "", seconds: float = 0.0) -> None:
        event = WorkerEvent(kind, self._owner.name, self._owner.version, device, pid, reason, seconds)
        self._observers.worker(event)
