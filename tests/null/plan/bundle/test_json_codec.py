"""Programs are written and read with the kinds of their arguments."""

from __future__ import annotations

import numpy as np

from opalite.plan.bundle.json_codec import Encoder, decode
from opalite.plan.program import LaunchStep, LocalArg, ScalarArg, SlotArg, TexelsArg


def test_arguments_of_a_launch_keep_their_kinds() -> None:
    args = SlotArg(3), TexelsArg(3), ScalarArg(np.int32(7)), LocalArg(64)
    step = LaunchStep(0, "f", args, (64,), (64,))
    found = decode(Encoder().encode(step), [])
    assert [type(a) for a in found.args] == [type(a) for a in args]
    assert found == step
