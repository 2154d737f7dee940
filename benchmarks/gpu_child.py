"""The process that measures one row of benchmarks/gpu.py: prepares, reports, waits for the signal to measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opalite.run.report.profile import Peaks

Row = tuple[str, int, str]
"""Network, batch, precision."""
READY = "ready"


class Child:
    """A child process with this process's options."""

    def __init__(self, row: Row, peaks: Peaks, kept: Path, parallel: int) -> None:
        """kept: see `problem`. parallel: number of children that prepare at the same time."""
        self.row = row
        self._begun = time.monotonic()
        self._folder = TemporaryDirectory()
        self._path = Path(self._folder.name) / "row.json"
        command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:], "--json", str(self._path)]
        command += ["--row", ",".join(map(str, row)), "--peaks", f"{peaks.flops},{peaks.bandwidth}"]
        command += ["--problems", str(kept)]
        self._errors = (Path(self._folder.name) / "errors").open("w+")
        pipe = subprocess.PIPE
        environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // parallel)), **os.environ}
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=environment
        )

    def wait(self, limit: float | None) -> None:
        """Waits until it is prepared or has ended. limit: seconds since its start, after which it is ended."""
        assert self._process.stdout is not None
        left = None if limit is None else max(0.0, self._begun + limit - time.monotonic())
        timer = None if left is None else threading.Timer(left, self._process.kill)
        if timer is not None:
            timer.start()
        for line in self._process.stdout:
            if line.strip() == READY:
                break
        if timer is not None:
            timer.cancel()

    def record(self) -> dict[str, Any]:
        """Its measurement, while no other child runs. RuntimeError with its output if it gives none."""
        self._process.communicate("go\n" if self._process.poll() is None else None)
        try:
            if not self._path.exists():
                self._errors.seek(0)
                raise RuntimeError(f"no result, exit code {self._process.returncode}: {self._errors.read()[-2000:]}")
            found: dict[str, Any] = json.loads(self._path.read_text())
            return found
        finally:
            self._errors.close()
            self._folder.cleanup()
