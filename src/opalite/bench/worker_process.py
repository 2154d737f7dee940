"""The parent's side of a worker process: starts it, stops it while others are measured, exchanges messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

import numpy as np

from .. import knobs
from ..errors import OpaliteError
from .engines import Array

_CAN_STOP = hasattr(signal, "SIGSTOP")
_LAST_WORDS = 2000  # characters of a dead worker's stderr in the error


class EngineProcess:
    """One engine in its own process group. It is stopped except inside `awake` and while it answers.

    `NAME@FOLDER` is engine NAME with FOLDER first on Python's import path, for example another checkout's `src`.
    """

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self._name, _, folder = engine.partition("@")
        environment = knobs.environment(PYTHONPATH=os.path.abspath(folder)) if folder else None
        self._stderr = TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        self._child = subprocess.Popen(
            [sys.executable, "-m", "opalite.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=environment,
            process_group=0,  # signals reach its children too, and it dies with this process even when stopped
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Lets the process run inside the block; a stopped process takes no core from the measured one."""
        self._signal("SIGCONT")
        try:
            yield
        finally:
            self._signal("SIGSTOP")

    def load(
        self,
        model: Path,
        threads: int,
        feeds: Mapping[str, Array],
        folder: Path,
        extra: Mapping[str, str],
        mode: str = "",
        workers: int = 1,
    ) -> dict[str, Any]:
        """Loads the model and runs it once; returns the worker's answer. `folder` receives a file of `feeds`.

        mode: for a pool of so many workers.
        """
        path = folder / "feeds.npz"
        np.savez(path, *feeds.values())  # positional, because an input may be called 'file', a parameter of savez
        request = {"model": str(model), "threads": threads, "names": list(feeds), "feeds": str(path)}
        pool = {"mode": mode, "workers": workers} if mode else {}
        with self.awake():
            return self._ask("load", engine=self._name, **request, extra=dict(extra), **pool)

    def settle(self, runs: int) -> None:
        """Untimed runs until the engine is in its final state; call inside `awake`."""
        self._ask("settle", runs=runs)

    def slice(self, seconds: float, warmup: int, least: int) -> list[float]:
        """Seconds of each run of a slice; call inside `awake`."""
        times: list[float] = self._ask("slice", seconds=seconds, warmup=warmup, least=least)["times"]
        return times

    def work(self, seconds: float) -> tuple[list[float], float]:
        """Seconds of each run of a pool that works for `seconds`, and in total; call inside `awake`."""
        answer = self._ask("work", seconds=seconds)
        return answer["times"], answer["seconds"]

    def outputs(self, folder: Path) -> list[Array]:
        """The last run's outputs, transferred through a file in `folder`."""
        path = folder / "outputs.npz"
        with self.awake():
            self._ask("save", path=str(path))
        with np.load(path) as archive:
            return [archive[name] for name in archive.files]

    def close(self) -> None:
        """Ends the process and its children; SIGKILL reaches stopped ones too."""
        if _CAN_STOP:
            self._signal("SIGKILL")
        else:
            self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()
        self._stderr.close()

    def _ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._child.wait()
            self._stderr.seek(0)
            last_words = self._stderr.read().decode(errors="replace")[-_LAST_WORDS:]
            raise OpaliteError(f"engine '{self.engine}' died at '{command}' (exit status {code})\n{last_words}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise OpaliteError(f"engine '{self.engine}' failed at '{command}': {answer['error']}")
        return answer

    def _signal(self, name: str) -> None:
        if _CAN_STOP and self._child.poll() is None:
            os.killpg(self._child.pid, getattr(signal, name))
