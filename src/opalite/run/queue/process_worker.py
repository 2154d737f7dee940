"""ProcessWorker: a process with a session of its own, from the side of the one that started it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ... import knobs
from ...errors import DeviceError, InputTypeError
from ...ir.device.device_info import DeviceInfo
from .shared_memory_arrays import Box

_PATIENCE_S = 5.0  # for the end of a process that may still build programs


class Cores(NamedTuple):
    """What a process may use of a CPU: the cores to which it is pinned (none: any), and how many threads."""

    numbers: tuple[int, ...]
    threads: int


class ProcessWorker:
    """Started by the first run, or before by `start`, and anew by the next run after it has ended.

    Arrays go through memory that both processes map, and all else by pickles through its standard streams; what it
    prints itself goes to this process's stderr.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        device: DeviceInfo,
        options: Mapping[str, Any],
        cores: Cores | None = None,
    ) -> None:
        self.device = device
        self._request = {
            "model": model,
            "options": dict(options),
            "cores": () if cores is None else cores.numbers,
        }
        self._environment = {} if cores is None else core_settings(cores)
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._inputs: Box
        self._outputs: Box

    @property
    def pid(self) -> int | None:
        """Number of the process; None if there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and wait until it has loaded the model. Raises what InferenceSession raises there."""
        with self._turn:
            self._start()

    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        """Outputs, or what the session raises. DeviceError if the process ends before it has answered."""
        with self._turn:
            if self._process is None:
                self._start()
            packed = self._inputs.put([_plain(v) for v in inputs.values()])
            answer = self._ask(("run", output_names, list(inputs), packed))
            return [a.copy() if is_shared else a for a, is_shared in self._outputs.get(answer)]

    def settle(self) -> None:
        """Have its session settle."""
        with self._turn:
            if self._process is not None:
                self._ask(("settle",))

    def close(self) -> None:
        """End the process."""
        with self._turn:
            self._stop()

    def _start(self) -> None:
        self._inputs, self._outputs = Box(), Box()
        boxes = (self._inputs.descriptor, self._outputs.descriptor)
        try:
            request = pickle.dumps({**self._request, "boxes": boxes})
        except (pickle.PicklingError, TypeError, AttributeError) as e:
            raise InputTypeError(f"options of sessions in processes must be picklable: {e}") from e
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.process_worker_main"],
            env=knobs.environment(PYTHONPATH=os.pathsep.join(p for p in sys.path if p), **self._environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=boxes,
        )
        self._process = process
        self._end = weakref.finalize(self, _end, process)
        try:
            self._send(request)
            self._receive()
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _ask(self, request: tuple[Any, ...]) -> Any:
        self._send(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
        return self._receive()

    def _send(self, request: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except OSError:
            self._fail()

    def _receive(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            is_error, answer = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._fail()
        if is_error:
            raise answer
        return answer

    def _fail(self) -> None:
        process = self._process
        assert process is not None
        self._stop()
        code = process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        raise DeviceError(f"the process {process.pid} that had this request {how}; the next request starts another")


def core_settings(cores: Cores) -> dict[str, str]:
    """The environment in which PoCL starts that many threads, on the cores of the process."""
    if cores.numbers:
        # This process may have told its own PoCL to take every core in order; there it pins what it finds allowed.
        return {} if knobs.foreign("POCL_AFFINITY") == "0" else {"POCL_AFFINITY": ""}
    return {"POCL_AFFINITY": "0", "POCL_MAX_PTHREAD_COUNT": str(cores.threads)}


def _plain(value: Any) -> Any:
    """An OrtValue as the array that it holds."""
    return value.numpy() if hasattr(value, "numpy") else value


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # the process has ended with something on the way to it
                stream.close()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
