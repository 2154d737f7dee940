"""What computes the requests of an InferQueue: shares of sessions of this process, or processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from ...cl.device.enumerate_devices import devices as list_devices
from ...cl.device.enumerate_devices import find_device
from ...errors import InputError, NoDeviceError
from ...ir.device.device_info import DeviceInfo
from ...pocl.core_affinity import allowed_cores, core_limit
from ..api.session.inference_session import InferenceSession
from ..api.session.open_session import ModelSource, check_model_source
from .process_worker import Cores, ProcessWorker

_AT_ONCE = {"cpu": 1}  # of one session: one run takes every core
_AT_ONCE_ELSEWHERE = 2  # a second one has its inputs ready when the first has been computed


class Worker(Protocol):
    """Computes one request at a time."""

    @property
    def device(self) -> DeviceInfo:
        """Where."""

    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        """Outputs in the model's order, or those named."""

    def settle(self) -> None:
        """Wait for what is done in the background."""

    def close(self) -> None:
        """Release what it holds."""


class SessionWorker:
    """A share of a session, which it closes if that is its own."""

    def __init__(self, session: InferenceSession, is_own: bool) -> None:
        self._session = session
        self._is_own = is_own
        self.device = session.device

    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        return self._session.run(output_names, inputs)

    def settle(self) -> None:
        self._session.settle()

    def close(self) -> None:
        if self._is_own:
            self._session.close()


def open_workers(
    model: str | os.PathLike[str] | bytes | InferenceSession | Sequence[InferenceSession],
    devices: str | Sequence[str] | None,
    count: int | None,
    processes: bool,
    options: Mapping[str, Any],
) -> list[Worker]:
    """Workers of each device in turn, so that the first requests go to different devices."""
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
    counts = [count or _AT_ONCE.get(session.device.kind, _AT_ONCE_ELSEWHERE) for session in sessions]
    turns = range(max(counts))
    return [SessionWorker(s, is_own) for turn in turns for s, n in zip(sessions, counts, strict=True) if turn < n]


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
    """Which devices are meant, as `InferenceSession(device=...)` takes them. InputError for none, or one twice."""
    if devices == "all":
        found: list[str | None] = [device.id for device in list_devices()]
        if not found:
            raise NoDeviceError("no OpenCL device was found; `opalite doctor` says what is missing")
        return found
    if devices is None or isinstance(devices, str):
        return [devices]
    requests: list[str | None] = list(devices)
    if not requests or not all(isinstance(d, str) for d in requests) or len(set(requests)) < len(requests):
        raise InputError(f"devices are 'all' or names such as ['gpu:0', 'cpu'], each once, got {devices!r}")
    return requests


def share_cores(count: int) -> list[Cores]:
    """What each of `count` processes may use of this process's cores: as many each, none of them twice if it can be.

    Where a container has fewer cores' time than cores, it is not said which ones, so that processes only take fewer
    threads.
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
    """Start them side by side, and wait until each has loaded the model."""
    if os.name != "posix":
        raise InputError("workers in processes share memory as POSIX systems do; leave processes=True out here")
    workers: list[ProcessWorker] = []
    for request in requests:
        device = find_device(request).info
        if device.kind == "cpu":
            shares: list[Cores | None] = [*share_cores(count or core_limit() or len(allowed_cores()))]
        else:
            shares = [None] * (count or 1)
        workers += [ProcessWorker(model, device, {**options, "device": request}, cores) for cores in shares]
    try:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(ProcessWorker.start, workers))
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    return workers
