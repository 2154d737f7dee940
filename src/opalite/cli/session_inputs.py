"""Inputs of a command's session, and the choice of precision 'auto' on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ..errors import InputError
from .input_files import PIXELS_TO_ONE, Inputs, InputSpec, Preprocess, load_inputs
from .shared_options import option_value, parse_shapes

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession


def session_inputs(session: InferenceSession, preprocess: Preprocess = PIXELS_TO_ONE) -> Inputs:
    """Load the inputs that the options --load-inputs, --shape and --seed give. InputError for inputs but tensors."""
    specs = []
    examples = session.example_shapes()
    for port in session.get_inputs():
        if port.dtype is None:
            raise InputError(f"input '{port.name}' is {port.type}: only tensors can be given on the command line")
        shape = tuple(d if isinstance(d, int) else None for d in port.shape)
        specs.append(InputSpec(port.name, port.dtype, shape, examples[port.name]))
    return load_inputs(
        option_value("files"), specs, parse_shapes(option_value("shapes")), preprocess, option_value("seed", 0)
    )


def settle_precision(session: InferenceSession, inputs: Inputs, console: Console) -> None:
    """Have a session with precision 'auto' choose on `inputs`. No effect on other sessions.

    A choice from random inputs is not stored.
    """
    if session.chooses_precision:
        session.keeps_precision = not inputs.random_names
        session.run(None, inputs.feeds)
        with console.status("looking for the nodes that must stay in fp32"):
            session.settle()


def precision_lines(session: InferenceSession, inputs: Inputs) -> list[str]:
    """Lines of `explain_precision`, and the inputs of the choice."""
    lines = session.explain_precision()
    if session.chooses_precision and inputs.random_names:
        names = ", ".join(inputs.random_names)
        lines.append(f"  chosen on random numbers for {names}, so it is not kept; give real inputs by --load-inputs")
    return lines
