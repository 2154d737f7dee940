"""WorkerProcess: a process of build_worker.py, with its partial request and answer."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import tempfile
from contextlib import suppress

from ...pocl.cpu_workarounds import worker_environment
from .build_worker import ANSWER, REQUEST
from .process_priority import CoreShare, set_niceness

_CHUNK = 1 << 16
_STARVED = 0.5  # core share below which a worker is replaced if its priority cannot be raised
_EXIT_S = 5.0  # timeout of a process that has closed its output
_MESSAGE_CHARACTERS = 200
_EXTERNAL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if os.name == "posix" else ()


class WorkerProcess:
    """A worker process of a BuildPool.

    lane: name of the lane whose build the worker serves, '' while idle. ready: the device is open. task: number of the
    program in the build. deadline: time.monotonic() after which the worker counts as hanging.
    """

    def __init__(self, command: list[str], folder: str) -> None:
        """folder: for PoCL's files."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the worker is stopped
        self.process = subprocess.Popen(
            command, env=worker_environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)
        self.niceness = 0
        self._share = CoreShare(self.process.pid)
        self.lane = ""
        self.ready = False
        self.task: int | None = None
        self.deadline = math.inf
        self._outgoing = b""
        self._incoming = bytearray()

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    def set_niceness(self, niceness: int) -> bool:
        """Set the niceness relative to this process; returns whether that succeeded."""
        if niceness != self.niceness and set_niceness(self.process.pid, niceness):
            self.niceness = niceness
        return niceness == self.niceness

    @property
    def is_starved(self) -> bool:
        """Return whether the worker is busy and got less than half a core since the last call."""
        share = self._share.since_last()
        return self.is_busy and share is not None and share < _STARVED

    @property
    def is_busy(self) -> bool:
        """Return whether the worker is starting or building."""
        return self.task is not None or not self.ready

    def assign(self, task: int, text: str, options: str) -> None:
        """Request the program (text, options) with number `task`."""
        raw_options, raw_text = options.encode(), text.encode()
        self._outgoing = REQUEST.pack(len(raw_options), len(raw_text)) + raw_options + raw_text
        self.task = task

    def send(self) -> bool:
        """Write as much of the request as the pipe takes; returns whether that is all.

        Raises OSError if the process has ended.
        """
        self._outgoing = self._outgoing[os.write(self.stdin, self._outgoing) :]
        return not self._outgoing

    def receive(self) -> bytes | None:
        """Read; returns the answer once it is complete, else None. Raises EOFError if the process has ended."""
        part = os.read(self.stdout, _CHUNK)
        if not part:
            raise EOFError
        self._incoming += part
        if len(self._incoming) < ANSWER.size:
            return None
        end = ANSWER.size + ANSWER.unpack_from(self._incoming)[0]
        if len(self._incoming) < end:
            return None
        answer = bytes(self._incoming[ANSWER.size : end])
        del self._incoming[:end]
        return answer

    def crash(self) -> str:
        """Status and last message of the process if its compiler crashed; else ""."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_EXIT_S)
        status = self.process.returncode
        if self.task is None or not status or -status in _EXTERNAL_SIGNALS:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"exit status {status}"
        return f"{name}, {lines[-1][:_MESSAGE_CHARACTERS]!r}" if lines else name

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        self._stderr.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
