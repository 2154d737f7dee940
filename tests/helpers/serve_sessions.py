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

from opalite.serve.engine import worker_models

SLOW, FAILS, DIES, HELD = 1001.0, 1002.0, 1003.0, 1004.0
"""A row that begins with SLOW takes as many seconds as it says next; FAILS is an error; DIES ends the process; HELD
waits until the test opens the gate of the number that it says next."""


class Gates:
    """Where rows that begin with HELD wait: files in the folder of the model's version."""

    PATIENCE_S = 60.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wait(self, number: float) -> None:
        """Waits in the worker until the gate is open."""
        with (self._folder / f"gate_{number:g}.begun").open("a") as begun:
            begun.write(".")
        end = time.monotonic() + self.PATIENCE_S
        while not (self._folder / f"gate_{number:g}.open").exists():
            assert time.monotonic() < end, f"nobody opened gate {number:g}"
            time.sleep(0.002)

    def open(self, number: float = 0) -> None:
        """Lets the rows that wait at the gate go on."""
        (self._folder / f"gate_{number:g}.open").touch()

    def waiting(self, number: float = 0) -> int:
        """How many rows have come to the gate."""
        begun = self._folder / f"gate_{number:g}.begun"
        return begun.stat().st_size if begun.exists() else 0


class Doubler:
    """y = 2 x, and the batch's size, where a row begins with a whole number, and the process's, for each row."""

    def __init__(self, path: str, **options: Any) -> None:
        text = Path(path).read_text().strip()
        if text == "broken":
            raise ValueError("this model is broken")
        self.factor = float(text or 2)
        self.gates = Gates(Path(path).parent)
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
            elif row[0] == HELD:
                self.gates.wait(float(row[1]))
            elif row[0] == FAILS:
                raise ValueError("a row that fails")
            elif row[0] == DIES:
                os.kill(os.getpid(), signal.SIGKILL)
        made = {"y": self.factor * x, "size": np.where(x[:, 0] % 1, 0, len(x)), "pid": np.full(len(x), os.getpid())}
        return [made[n] for n in names or made]


def doubler(path: str, **options: Any) -> Doubler:
    """Opens a Doubler."""
    return Doubler(path, **options)


class Pair(Doubler):
    """A Doubler two of whose runs go on at once: each waits for another beside it. `size`: how many were inside."""

    PATIENCE_S = 60.0

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self._inside, self._has_met, self._changed = 0, False, threading.Condition()

    def run(self, names: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        row = feeds["x"][0]
        with self._changed:
            self._inside += 1
            self._has_met |= self._inside == 2
            self._changed.notify_all()
            if 0 < row[0] < SLOW and row[0] % 1 == 0:  # rows that warm up begin with fractions
                self._changed.wait_for(lambda: self._has_met, self.PATIENCE_S)
            inside = 2 if self._has_met else self._inside
        y, _, pid = super().run(None, feeds)
        with self._changed:
            self._inside -= 1
        made = {"y": y, "size": np.full(len(y), inside), "pid": pid}
        return [made[n] for n in names or made]


def pair(path: str, **options: Any) -> Pair:
    """Opens a Pair in a worker that has found out that two runs at once are fastest."""
    worker_models.best_concurrency = lambda run, cores: 2
    return Pair(path, **options)
