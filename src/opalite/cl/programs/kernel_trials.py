"""KernelTrials: first launches of generated PTX kernels in a separate process, where a fault does no harm.

With NVIDIA's driver a faulting kernel kills every context and queue of its process, and clCreateContext fails from then
on (-9999, measured on an H200). The trial process also compiles the kernel, during which the driver would block this
process's launches for seconds. The driver caches the compiled kernel, so that this process then loads the kernel in
milliseconds.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from queue import Empty, SimpleQueue

from ... import knobs
from ...cache.binary_store import FORMAT, BinaryStore
from ...cache.cache_keys import digest
from ...ir.device.device_info import DeviceInfo
from ...lazy_dataclass import dataclass
from .build_parallelism import may_start_processes
from .kernel_trial_main import BUILT, FAULT, RAN

BUILD_S, RUN_S = 600.0, 60.0
"""Timeouts of compilation and launches."""
_PASSED = b"ran"  # store entry of a kernel that passed
_known: dict[str, str] = {}  # fault by key, '' if passed; survives the replacement of a dead context
_MESSAGE_CHARACTERS = 300


@dataclass(frozen=True)
class Trial:
    """A kernel launch to try.

    program: binary (PTX). kernel: name; it takes one argument, a struct of 64-bit addresses. items, group: global and
    local size. sizes: bytes of the zeroed buffers. addresses: buffer number of each address, -1 for a null pointer.
    contents: initial bytes by buffer number.
    """

    program: bytes
    kernel: str
    items: int
    group: int
    sizes: Sequence[int]
    addresses: Sequence[int]
    contents: Mapping[int, bytes] = field(default_factory=dict)

    def request(self) -> bytes:
        """Input of the trial process: a line of JSON, then the program."""
        fields = {
            "kernel": self.kernel,
            "items": self.items,
            "group": self.group,
            "sizes": list(self.sizes),
            "addresses": list(self.addresses),
            "contents": {str(i): base64.b64encode(raw).decode() for i, raw in self.contents.items()},
            "nbytes": len(self.program),
        }
        return json.dumps(fields).encode() + b"\n" + self.program


class KernelTrials:
    """Results of trials on one device, in this process and in earlier ones with the same cache. Thread-safe."""

    def __init__(self, index: str, info: DeviceInfo, fingerprint: str, store: BinaryStore | None) -> None:
        """index: the device as 'platform:device'. fingerprint: identifies device and driver."""
        self._index, self._info, self._fingerprint, self._store = index, info, fingerprint, store

    def fault(self, trial: Trial) -> str:
        """Reason not to launch the kernel in this process, from a trial now or earlier; '' if the trial passed."""
        known = self.known_fault(trial.program)
        if known is not None:
            return known
        why, is_final = self._run(trial)
        if is_final:
            self._record(self._key(trial.program), why)
        return why

    def known_fault(self, program: bytes) -> str | None:
        """`fault` of a kernel that was tried before; None if it was not."""
        key = self._key(program)
        if key not in _known and self._store is not None and (stored := self._store.get(key)) is not None:
            _known[key] = "" if stored == _PASSED else stored.decode(errors="replace")
        return _known.get(key)

    def record_failure(self, program: bytes, why: str) -> None:
        """Record that a kernel failed in this process although it passed its trial."""
        self._record(self._key(program), why)

    def _record(self, key: str, why: str) -> None:
        _known[key] = why
        if self._store is not None:
            self._store.put(key, why.encode() or _PASSED, replace=bool(why))

    def _key(self, program: bytes) -> str:
        return digest(str(FORMAT), self._fingerprint, "trial", program.decode("latin-1"))

    def _run(self, trial: Trial) -> tuple[str, bool]:
        """Run a trial; returns (`fault`, whether the result may be stored)."""
        if not (self._index and sys.executable and may_start_processes()):
            return "it cannot be tried: no background process may start", False
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
            output = _Output(process)
            try:
                with suppress(BrokenPipeError):
                    assert process.stdin is not None
                    process.stdin.write(trial.request())
                    process.stdin.flush()
                if not output.wait_for(BUILT, BUILD_S):
                    return f"it cannot be tried: {output.ending()}", False
                if output.wait_for(RAN, RUN_S):
                    return "", True
                return f"it does not survive its trial: {output.ending()}", True
            finally:
                process.kill()


class _Output:
    """Lines that a process prints, read by a thread."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._unread: SimpleQueue[str | None] = SimpleQueue()  # None at the end
        self._lines: list[str] = []
        self._is_done = False
        threading.Thread(target=self._read, name="opalite-trial", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._unread.put(line.decode(errors="replace").strip())
        self._unread.put(None)

    def wait_for(self, word: str, seconds: float) -> bool:
        """Wait for the line `word`; returns whether it came within `seconds`."""
        until = time.monotonic() + seconds
        with suppress(Empty):
            while (line := self._unread.get(timeout=max(0.0, until - time.monotonic()))) is not None:
                self._lines.append(line)
                if line == word:
                    return True
            self._is_done = True
        return False

    def ending(self) -> str:
        """Description of how the process ended."""
        if not self._is_done:
            return "it does not end"
        status = self._process.wait()
        fault = next((line for line in self._lines if line.startswith(FAULT)), "")
        if fault:
            return fault.removeprefix(FAULT)[:_MESSAGE_CHARACTERS]
        if status < 0:
            return f"it ends the process by signal {-status}"
        return " ".join(self._lines)[-_MESSAGE_CHARACTERS:] or f"the process ends with status {status}"
