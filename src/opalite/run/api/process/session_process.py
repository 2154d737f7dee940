"""SessionProcess: an InferenceSession in a process of its own, seen from the parent process."""

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
from typing import Any

from .... import knobs
from ....errors import DeviceError, InputTypeError
from .shared_memory import SharedArrays

_EXIT_TIMEOUT_S = 5.0  # the process may still build programs


class SessionProcess:
    """Runs a model in another process. Thread-safe: runs are sequential.

    `start` or the first run starts the process. If the process has ended, the next run starts another one. Numeric
    arrays pass through shared memory, everything else through pickles on stdin and stdout. Output of drivers in the
    process goes to this process's stderr.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        *,
        cores: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        may_recover: bool = True,
        error: type[DeviceError] = DeviceError,
    ) -> None:
        """arguments: of InferenceSession, by name.

        cores: the CPU cores to which the process is pinned; none pins nothing. environment: changed variables.
        may_recover: whether the session in the process handles the loss of its device. error: raised if the process
        cannot be started, or ends during a run.
        """
        self._request = {"arguments": dict(arguments), "cores": tuple(cores), "may_recover": may_recover}
        self._environment = dict(environment or {})
        self._error = error
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._inputs: SharedArrays
        self._outputs: SharedArrays

    @property
    def pid(self) -> int | None:
        """The process id, None if no process was started."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and wait until it has loaded the model. Raises the errors of InferenceSession."""
        with self._lock:
            self._start()

    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        """Outputs in order, copied from shared memory. Raises the errors of `InferenceSession.run`."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            packed = self._inputs.put([v.numpy() if hasattr(v, "numpy") else v for v in inputs.values()])
            answer = self._call("run", output_names, list(inputs), packed)
            return [a.copy() if is_shared else a for a, is_shared in self._outputs.get(answer)]

    def settle(self) -> None:
        """Call `InferenceSession.settle` in the process."""
        with self._lock:
            if self._process is not None:
                self._call("settle")

    def close(self) -> None:
        """End the process. Another run starts another one."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        self._stop()
        self._inputs, self._outputs = SharedArrays(), SharedArrays()
        descriptors = (self._inputs.descriptor, self._outputs.descriptor)
        try:
            request = pickle.dumps({**self._request, "descriptors": descriptors})
        except (pickle.PicklingError, TypeError, AttributeError) as e:
            raise InputTypeError(f"options of sessions in processes must be picklable: {e}") from e
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.session_process_main"],
                env=knobs.environment(PYTHONPATH=path, **self._environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[d for d in descriptors if d >= 0],
            )
        except OSError as e:
            raise self._error(f"no process can be started to run the model: {e}") from e
        self._end = weakref.finalize(self, _end, self._process)
        try:
            self._exchange(request)
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _call(self, *request: Any) -> Any:
        return self._exchange(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))

    def _exchange(self, request: bytes) -> Any:
        """Send a request and return the answer; raises an answer that is an error."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
            is_error, answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as e:
            self._stop()
            code = process.returncode
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            raise self._error(
                f"process {process.pid}, which ran the model, {how}: see its messages on standard error. The next run "
                "starts another one"
            ) from e
        if is_error:
            raise answer
        return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # unsent bytes for a process that has ended
                stream.close()
    try:
        process.wait(_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
