"""Tables of which runs pick rows."""

from __future__ import annotations

import numpy as np

from opalite.plan.bundle.write_bundle import picked_slots
from opalite.plan.program import LaunchStep, Program, ScalarArg, SlotArg


def launch(kernel: str, *slots: int) -> LaunchStep:
    return LaunchStep(0, "run", (*map(SlotArg, slots), ScalarArg(np.int32(1))), (1,), None, kernel=kernel)


def test_weights_that_gathers_alone_read() -> None:
    weights = {n: np.zeros(1, np.float32) for n in range(5)}
    steps = [launch("GatherRows", 0, 1, 9), launch("MatmulLocalTile", 1, 2), launch("QuantizedGatherRows", 3, 9)]
    assert picked_slots(Program("p", weights=weights, steps=[*steps])) == {0, 3}
