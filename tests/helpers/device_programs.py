"""Programs planned for a device that is not here, run on the one that is: what their launches compute, as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opalite.errors import OpaliteError
from opalite.plan.program import Program


class NotHere(Exception):  # noqa: N818  (a reason, not an error)
    """No device here runs the program."""


def run_here(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Outputs of `program` for `inputs`. NotHere where there is no OpenCL, or nothing that takes the program.

    Dot products of packed bytes are those in plain OpenCL C, for few devices here have instructions for them.
    """
    from opalite.cl.runtime import find_runtime
    from opalite.run.execute.executable import Executable
    from opalite.run.execute.host_operators import on_host
    from opalite.run.model.control_flow.host_onnx_operators import onnx_runner

    sources = [replace(s, options=re.sub("-DDOT=[12]", "-DDOT=0", s.options)) for s in program.sources]
    try:
        executable = Executable(find_runtime(None), replace(program, sources=sources), onnx_runner(), is_trial=True)
        # memory that was used before may hold the right numbers where a launch does not write: those of others now
        executable.run([np.flip(x).copy() if x.dtype.kind == "f" else x for x in inputs])
        outputs, _ = executable.run(list(inputs))
    except OpaliteError as e:
        raise NotHere(str(e)) from e
    return [on_host(v).copy() for v in outputs]
