"""A progress bar on the terminal while programs are built, which takes seconds the first time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from ... import knobs

PATIENCE_S = 0.5  # builds that take no longer show nothing
_WIDTH = 30

ReportProgress = Callable[[int, int], None]
"""Called with the number of programs that are built, and the number of all."""


@contextmanager
def build_progress(
    stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[ReportProgress | None]:
    """A function that draws a bar on `stream` (stderr) and clears it at the end; None if that is no terminal."""
    target = sys.stderr if stream is None else stream
    if target is None or not target.isatty() or not knobs.get("OPALITE_PROGRESS"):
        yield None
        return
    started = clock()
    drawn = False

    def report(done: int, total: int) -> None:
        nonlocal drawn
        if clock() - started < PATIENCE_S:
            return
        filled = _WIDTH * done // max(total, 1)
        bar = "#" * filled + "." * (_WIDTH - filled)
        target.write(f"\rcompiling kernels [{bar}] {done}/{total} ")
        target.flush()
        drawn = True

    try:
        yield report
    finally:
        if drawn:
            target.write("\r\x1b[K")
            target.flush()
