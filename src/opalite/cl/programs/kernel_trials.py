"""KernelTrials: a kernel that no compiler has checked is launched in a process of its own before it is launched here.

A kernel that faults takes the context of its process: on NVIDIA's driver every queue and every other context of the
process is dead from then on, and it makes no new one (measured on an H200; clCreateContext gives -9999 whatever is
released before). In another process a fault costs nothing. That process also compiles the program, for seconds in which
NVIDIA's driver lets launches of the same process wait. The driver keeps what any process has compiled and loads it
here in milliseconds.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ... import knobs
from ...cache.binary_store import FORMAT, BinaryStore
from ...cache.cache_keys import digest
from ...ir.device.device_info import DeviceInfo
from .build_parallelism import may_start_processes
from .kernel_trial_main import BUILT, FAULT, RAN

BUILD_S = 600.0
RUN_S = 60.0
"""Seconds in which the process must have compiled the program, and then have run it."""
_RIGHT = b"ran"
_known: dict[str, str] = {}  # what this process has found out, also for contexts that take the place of a dead one
_WORDS = 300  # of what the process said last


@dataclass(frozen=True)
class Trial:
    """A launch to try.

    program: its binary, such as PTX. kernel: takes one argument, addresses of 64 bits. items, group: work-items of the
    launch and of a work-group. sizes: bytes of buffers, which hold zeros. addresses: of the argument, in order, numbers
    of buffers; -1 for 0. contents: what the first bytes of a buffer are, by its number.
    """

    program: bytes
    kernel: str
    items: int
    group: int
    sizes: Sequence[int]
    addresses: Sequence[int]
    contents: Mapping[int, bytes] = field(default_factory=dict)

    def request(self) -> bytes:
        """What the process reads: a line of JSON, and the program."""
        given = {
            "kernel": self.kernel,
            "items": self.items,
            "group": self.group,
            "sizes": list(self.sizes),
            "addresses": list(self.addresses),
            "contents": {str(i): base64.b64encode(raw).decode() for i, raw in self.contents.items()},
            "nbytes": len(self.program),
        }
        return json.dumps(given).encode() + b"\n" + self.program


class KernelTrials:
    """What was tried on a device, by this process or an earlier one with the same cache. Thread-safe."""

    def __init__(self, index: str, info: DeviceInfo, fingerprint: str, store: BinaryStore | None) -> None:
        """index: of the device, 'platform:device'. fingerprint: of device and driver."""
        self._index, self._info, self._fingerprint, self._store = index, info, fingerprint, store

    def fault(self, trial: Trial) -> str:
        """Why the kernel is not to be launched here, from a trial now or earlier; '' where it ran."""
        key = self._key(trial.program)
        if key not in _known and self._store is not None and (kept := self._store.get(key)) is not None:
            _known[key] = "" if kept == _RIGHT else kept.decode(errors="replace")
        if key in _known:
            return _known[key]
        why, is_sure = self._run(trial)
        if is_sure:
            self._keep(key, why)
        return why

    def record_failure(self, program: bytes, why: str) -> None:
        """Note that a kernel that passed its trial has failed here."""
        self._keep(self._key(program), why)

    def _keep(self, key: str, why: str) -> None:
        _known[key] = why
        if self._store is not None:
            self._store.put(key, why.encode() or _RIGHT, replace=bool(why))

    def _key(self, program: bytes) -> str:
        return digest(str(FORMAT), self._fingerprint, "trial", program.decode("latin-1"))

    def _run(self, trial: Trial) -> tuple[str, bool]:
        """What `fault` says, and whether it holds for ever."""
        if not (self._index and sys.executable and may_start_processes()):
            return "it cannot be tried, for no process may run beside this one", False
        command = [sys.executable, "-P", "-m", f"{__package__}.kernel_trial_main", self._index, self._info.version]
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        try:
            process = subprocess.Popen(
                command,
                env=knobs.environment(PYTHONPATH=path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as e:
            return f"it cannot be tried: {e}", False
        with process:
            said = _Said(process)
            try:
                with suppress(BrokenPipeError):
                    assert process.stdin is not None
                    process.stdin.write(trial.request())
                    process.stdin.flush()
                if not said.wait_for(BUILT, BUILD_S):
                    return f"it cannot be tried: {said.end()}", False
                if said.wait_for(RAN, RUN_S):
                    return "", True
                return f"it does not survive its trial: {said.end()}", True
            finally:
                process.kill()


class _Said:
    """What a process says, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._is_done = False
        threading.Thread(target=self._read, name="opalite-trial", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                with self._changed:
                    self._lines.append(line.decode(errors="replace").strip())
                    self._changed.notify_all()
        with self._changed:
            self._is_done = True
            self._changed.notify_all()

    def wait_for(self, word: str, seconds: float) -> bool:
        """Whether it says `word`, which it must do within `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: word in self._lines or self._is_done, seconds)
            return word in self._lines

    def end(self) -> str:
        """How it ended, or that it did not."""
        if not self._is_done:
            return "it does not end"
        status = self._process.wait()
        fault = next((line for line in self._lines if line.startswith(FAULT)), "")
        if fault:
            return fault.removeprefix(FAULT)[:_WORDS]
        if status < 0:
            return f"it ends the process by signal {-status}"
        return " ".join(self._lines)[-_WORDS:] or f"the process ends with status {status}"
