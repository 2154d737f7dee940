"""FallbackProcess: a session in a process of its own, for one whose process has lost its device."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import IO, Any

from .... import knobs
from ....errors import DeviceLostError
from .fallback_process_main import read, write


class FallbackProcess:
    """Runs a model as a session with `arguments` would. Thread-safe: runs go in turn.

    The process starts at the first run, and again if it has ended. It ends with this object.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """arguments: of InferenceSession, by name."""
        self._arguments = pickle.dumps(dict(arguments))
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """All outputs in order. Raises what the run raises there; DeviceLostError where no process can be had."""
        with self._lock:
            try:
                ask, answer = self._pipes()
                write(ask, pickle.dumps(dict(feeds), protocol=5))
                found = read(answer)
            except OSError as e:
                raise DeviceLostError(f"the device is lost, and no other process can run the model: {e}") from e
        if found is None:
            raise DeviceLostError(
                "the device is lost, and the process that ran the model instead has ended: see what it wrote "
                "to standard error, and start this process again"
            )
        is_right, value = pickle.loads(found)
        if not is_right:
            raise value
        outputs: list[Any] = value
        return outputs

    def close(self) -> None:
        """End the process; another run starts another one."""
        with self._lock:
            if self._process is not None:
                _end(self._process)
                self._process = None

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """To a process that has the model."""
        if self._process is None or self._process.poll() is not None:
            if not sys.executable:
                raise OSError("Python does not say where its program is")
            path = os.pathsep.join(p or os.getcwd() for p in sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.fallback_process_main"],
                env=knobs.environment(PYTHONPATH=path, OPALITE_PERSISTENT="0"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            weakref.finalize(self, _end, self._process)
            assert self._process.stdin is not None
            write(self._process.stdin, self._arguments)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
