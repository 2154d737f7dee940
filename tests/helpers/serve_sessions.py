"""Sessions that workers open in place of Opalite's: rows of numbers, some of which ask for trouble."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

SLOW, FAILS, DIES = 1001.0, 1002.0, 1003.0
"""A row that begins with SLOW takes as many seconds as it says next; FAILS is an error; DIES ends the process."""


class Doubler:
    """y = 2 x, and the batch's size, where a row begins with a whole number, and the process's, for each row."""

    def __init__(self, path: str, **options: Any) -> None:
        text = Path(path).read_text().strip()
        if text == "broken":
            raise ValueError("this model is broken")
        self.factor = float(text or 2)
        time.sleep(float(options.get("tune") or 0))

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", type="tensor(float)", shape=["batch", 3])]

    def get_outputs(self) -> list[Any]:
        numbers = [SimpleNamespace(name=n, type="tensor(int64)", shape=["batch"]) for n in ("size", "pid")]
        return [SimpleNamespace(name="y", type="tensor(float)", shape=["batch", 3]), *numbers]

    def run(self, names: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        x = feeds["x"]
        for row in x:
            if row[0] == SLOW:
                time.sleep(float(row[1]))
            elif row[0] == FAILS:
                raise ValueError("a row that fails")
            elif row[0] == DIES:
                os.kill(os.getpid(), signal.SIGKILL)
        made = {"y": self.factor * x, "size": np.where(x[:, 0] % 1, 0, len(x)), "pid": np.full(len(x), os.getpid())}
        return [made[n] for n in names or made]


def doubler(path: str, **options: Any) -> Doubler:
    """Opens a Doubler."""
    return Doubler(path, **options)


class Sleeper(Doubler):
    """A Doubler whose runs take 11 ms alone, and 2 beside others: `size` is how many go on."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self._inside, self._lock = 0, threading.Lock()

    def run(self, names: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        with self._lock:
            self._inside += 1
            alone = self._inside == 1
        time.sleep(0.011 if alone else 0.002)
        y, _, pid = super().run(None, feeds)
        with self._lock:
            inside, self._inside = self._inside, self._inside - 1
        made = {"y": y, "size": np.full(len(y), inside), "pid": pid}
        return [made[n] for n in names or made]


def sleeper(path: str, **options: Any) -> Sleeper:
    """Opens a Sleeper."""
    return Sleeper(path, **options)
