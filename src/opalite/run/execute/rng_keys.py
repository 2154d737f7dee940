"""RngKeys: gives random launches another key in every run, so that runs draw different numbers, as in onnxruntime.

The first run uses the planned key. Later keys follow from it and the number of the run, so a seed repeats all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ...cl.queue.launch_sequence import LaunchSequence
from ...cl.queue.prepared_launch import PreparedLaunch
from ...ir.rng_seed import KEY_ARGUMENTS
from ...plan.program import LaunchStep, Program, ScalarArg


class RngKeys:
    """The random launches of a program."""

    def __init__(self, program: Program, launches: Mapping[int, PreparedLaunch]) -> None:
        self._runs = 0
        self._drawn: list[tuple[PreparedLaunch, int, int]] = []  # launch, number of the argument, planned key
        for i, launch in launches.items():
            step = program.steps[i]
            if isinstance(step, LaunchStep) and step.entry in KEY_ARGUMENTS:
                number = KEY_ARGUMENTS[step.entry]
                high = step.args[number]
                assert isinstance(high, ScalarArg)
                self._drawn.append((launch, number, int(high.value)))

    def __bool__(self) -> bool:
        return bool(self._drawn)

    def begin(self, recordings: Iterable[LaunchSequence]) -> None:
        """Set the keys of the run that begins."""
        if not self._drawn:
            return
        for launch, number, planned in self._drawn:
            launch.set_arg(number, np.uint32((planned + self._runs) & 0xFFFFFFFF))
        if self._runs:
            for recording in recordings:
                recording.invalidate()
        self._runs += 1


def draws(program: Program) -> bool:
    """Whether `program` has random launches."""
    return any(isinstance(s, LaunchStep) and s.entry in KEY_ARGUMENTS for s in program.steps)
