"""Precision 'auto' in commands: chooses on the given inputs, waits, and prints the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession
    from .input_files import Inputs


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
