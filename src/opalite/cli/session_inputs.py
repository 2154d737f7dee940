"""What a session's inputs look like to the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError
from .input_files import Wanted

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession


def wanted_inputs(session: InferenceSession) -> list[Wanted]:
    """Every input the caller must feed, free dimensions as None."""
    wanted = []
    examples = session.example_shapes()
    for port in session.get_inputs():
        if port.dtype is None:
            raise InputError(f"input '{port.name}' is {port.type}: only tensors can be given on the command line")
        shape = tuple(d if isinstance(d, int) else None for d in port.shape)
        wanted.append(Wanted(port.name, port.dtype, shape, examples[port.name]))
    return wanted
