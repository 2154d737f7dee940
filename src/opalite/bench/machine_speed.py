"""Measures the machine's current speed: a fixed piece of work on as many threads as the engines use."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_SIGNAL = np.linspace(-1, 1, 131072, dtype=np.float32)
_TAPS = np.linspace(-1, 1, 255, dtype=np.float32)


class Probe:
    """Times `threads` simultaneous convolutions: slower if clocks drop or others use the cores."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        self.measure()

    def measure(self) -> float:
        """Seconds of the better of two attempts, some milliseconds each."""
        return min(self._once(), self._once())

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def _once(self) -> float:
        begin = time.perf_counter()
        for done in [self._pool.submit(np.convolve, _SIGNAL, _TAPS) for _ in range(self._threads)]:
            done.result()
        return time.perf_counter() - begin
