"""The workers of an InferQueue: shared sessions of this process, or processes with a session each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ... import knobs
from ...cl.device.enumerate_devices import devices as list_devices
from ...cl.device.enumerate_devices import find_device
from ...errors import InputError
from ...ir.device.device_info import DeviceInfo
from ...pocl.core_affinity import allowed_cores, core_limit
from ..api.process.session_process import SessionProcess
from ..api.session.inference_session import InferenceSession
from ..api.session.open_session import ModelSource, check_model_source

_CPU_RUNS, _OTHER_RUNS = 1, 2
"""Concurrent runs of one session: a run on a CPU uses all cores; a GPU prepares one run's inputs during another."""


class Cores(NamedTuple):
    """CPU resources of a process: the cores to which it is pinned (none: not pinned), and its number of threads."""

    numbers: tuple[int, ...]
    threads: int


class SessionWorker:
    """A worker, for one request at a time, that shares a session. is_own: `close` closes the session."""

    def __init__(self, session: InferenceSession, is_own: bool) -> None:
        self._session, self._is_own = session, is_own
        self.device = session.device

    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        return self._session.run(output_names, inputs)

    def settle(self) -> None:
        self._session.settle()

    def close(self) -> None:
        if self._is_own:
            self._session.close()


class ProcessWorker(SessionProcess):
    """A worker that is a process with a session of its own."""

    def __init__(
        self, model: ModelSource, device: DeviceInfo, options: Mapping[str, Any], cores: Cores | None = None
    ) -> None:
        """cores: None for devices other than CPUs."""
        numbers, environment = ((), {}) if cores is None else (cores.numbers, core_settings(cores))
        super().__init__({"path_or_bytes": model, **options}, cores=numbers, environment=environment)
        self.device = device


Worker = SessionWorker | ProcessWorker


def core_settings(cores: Cores) -> dict[str, str]:
    """The environment in which PoCL starts `cores.threads` threads on the process's cores."""
    if cores.numbers:
        # This process may have set POCL_AFFINITY=1 for itself; a pinned process has PoCL pin to the allowed cores only.
        return {} if knobs.foreign("POCL_AFFINITY") == "0" else {"POCL_AFFINITY": ""}
    return {"POCL_AFFINITY": "0", "POCL_MAX_PTHREAD_COUNT": str(cores.threads)}


def open_workers(
    model: str | os.PathLike[str] | bytes | InferenceSession | Sequence[InferenceSession],
    devices: str | Sequence[str] | None,
    count: int | None,
    processes: bool,
    options: Mapping[str, Any],
) -> list[Worker]:
    """Open the workers of all devices, round robin, so that the first requests go to different devices."""
    if isinstance(model, InferenceSession | list | tuple):
        sessions, is_own = [model] if isinstance(model, InferenceSession) else list(model), False
        if not sessions or not all(isinstance(s, InferenceSession) for s in sessions):
            raise InputError(f"InferQueue takes a model's path, its bytes, or open sessions, got {model!r}")
        if processes or devices is not None or options:
            raise InputError("open sessions have their devices and options; give InferQueue the model in their place")
    else:
        source, requests = check_model_source(model), device_requests(devices)
        if processes:
            return [*_start_processes(source, requests, count, options)]
        sessions, is_own = _open_sessions(source, requests, options), True
    counts = [count or (_CPU_RUNS if session.device.kind == "cpu" else _OTHER_RUNS) for session in sessions]
    return [
        SessionWorker(s, is_own) for i in range(max(counts)) for s, n in zip(sessions, counts, strict=True) if i < n
    ]


def _open_sessions(
    model: ModelSource, requests: Sequence[str | None], options: Mapping[str, Any]
) -> list[InferenceSession]:
    sessions: list[InferenceSession] = []
    try:
        for request in requests:
            sessions.append(InferenceSession(model, device=request, **options))
    except BaseException:
        for session in sessions:
            session.close()
        raise
    return sessions


def device_requests(devices: str | Sequence[str] | None) -> list[str | None]:
    """Device requests as `InferenceSession(device=...)` takes them. Raises InputError for none, or for duplicates.

    "all" gives the devices of the default device's kind: a CPU next to GPUs would serve few requests, each late.
    """
    if devices == "all":
        best = find_device().info
        if best.kind == "cpu":  # two drivers of one CPU would share its cores
            return [best.id]
        return [device.id for device in list_devices() if device.kind == best.kind]
    if devices is None or isinstance(devices, str):
        return [devices]
    requests: list[str | None] = list(devices)
    if not requests or not all(isinstance(d, str) for d in requests) or len(set(requests)) < len(requests):
        raise InputError(f"devices are 'all' or names such as ['gpu:0', 'cpu'], each once, got {devices!r}")
    return requests


def share_cores(count: int) -> list[Cores]:
    """Divide this process's cores evenly among `count` processes.

    A container's quota may limit CPU time to fewer cores than are visible. The processes are then not pinned, and start
    fewer threads.
    """
    own, limit = allowed_cores(), core_limit()
    if limit is not None and limit < len(own):
        return [Cores((), max(1, limit // count))] * count
    if count > len(own):
        return [Cores((own[i % len(own)],), 1) for i in range(count)]
    return [Cores(tuple(int(c) for c in part), len(part)) for part in np.array_split(own, count)]


def _start_processes(
    model: ModelSource, requests: Sequence[str | None], count: int | None, options: Mapping[str, Any]
) -> list[ProcessWorker]:
    """Start the processes concurrently, and wait until each has loaded the model."""
    if os.name != "posix":
        raise InputError("processes=True needs memory shared in the way of POSIX systems; leave it out on this system")
    workers: list[ProcessWorker] = []
    for request in requests:
        device = find_device(request).info
        if device.kind == "cpu":
            parts: list[Cores | None] = [*share_cores(count or core_limit() or len(allowed_cores()))]
        else:
            parts = [None] * (count or 1)
        workers += [ProcessWorker(model, device, {**options, "device": request}, cores) for cores in parts]
    try:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(ProcessWorker.start, workers))
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    return workers
