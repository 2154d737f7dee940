"""Profiler: profiles in onnxruntime's format, a JSON array of events for chrome://tracing and Perfetto."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ....cl.queue.event_times import LaunchTimes
from ....errors import OptionError
from ....plan.program import LaunchStep, Step


class Profiler:
    """Records the loading of a session, its runs, and the launches of each run."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        self._prefix = prefix
        self._events: list[dict[str, Any]] = []
        self._launches: list[tuple[LaunchStep, LaunchTimes]] = []

    def __call__(self, step: Step, times: LaunchTimes) -> None:
        """Record one launch of the current run."""
        if isinstance(step, LaunchStep):
            self._launches.append((step, times))

    def add_session(self, name: str, started_ns: int, **args: str) -> None:
        """Add an event of the session, from `started_ns` (time.monotonic_ns) to now."""
        self._add("Session", name, started_ns, time.monotonic_ns(), args)

    def add_run(self, started_ns: int) -> None:
        """Add a finished run that began at `started_ns`, and its launches.

        The clocks of host and device differ, so the first launch is drawn at the start of the run.
        """
        self._add("Session", "model_run", started_ns, time.monotonic_ns(), {})
        first = min((t.queued for _, t in self._launches), default=0.0)
        for step, times in self._launches:
            begin = started_ns + int((times.start - first) * 1e9)
            args = {
                "op_name": step.kernel,
                "provider": "OpenCLExecutionProvider",
                "queued_us": str(round((times.start - times.queued) * 1e6, 3)),
            }
            name = f"{step.node or step.kernel}_kernel_time"
            self._add("Node", name, begin, begin + int(times.seconds * 1e9), args)
        self._launches = []

    def _add(self, category: str, name: str, start_ns: int, end_ns: int, args: dict[str, str]) -> None:
        self._events.append(
            {
                "cat": category,
                "pid": os.getpid(),
                "tid": 1 if category == "Session" else 2,
                "dur": max(end_ns - start_ns, 0) // 1000,
                "ts": max(start_ns - self.start_ns, 0) // 1000,
                "ph": "X",
                "name": name,
                "args": args,
            }
        )

    def write(self) -> str:
        """Write the events to PREFIX_DATE_TIME.json; returns the file's name. Raises OptionError if writing fails."""
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        path = Path(f"{self._prefix}_{stamp}.json")
        number = 1
        while path.exists():
            path = Path(f"{self._prefix}_{stamp}_{number}.json")
            number += 1
        try:
            path.write_text(_lines(self._events))
        except OSError as e:
            raise OptionError(
                f"the profile cannot be written to '{path}': {e.strerror or e}; set profile_file_prefix"
            ) from e
        return str(path)


def _lines(events: Sequence[dict[str, Any]]) -> str:
    """The events as JSON, one event in each line as in onnxruntime's files."""
    return "[\n" + ",\n".join(json.dumps(e) for e in events) + "\n]\n"
