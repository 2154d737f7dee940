"""What commands do about precision 'auto': let the session choose on the inputs, wait for it, and say what it chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession
    from .input_files import Inputs


def settle_precision(session: InferenceSession, inputs: Inputs, console: Console) -> None:
    """Let a session with precision 'auto' choose on `inputs`; nothing for any other, which has no choice.

    What made-up inputs show holds for this command alone.
    """
    if session.chooses_precision:
        session.keeps_precision = not inputs.made_up
        session.run(None, inputs.feeds)
        with console.status("looking for the nodes that must stay in fp32"):
            session.settle()


def precision_lines(session: InferenceSession, inputs: Inputs) -> list[str]:
    """How float32 is stored, as `explain_precision` tells it, and what a choice rests on."""
    lines = session.explain_precision()
    if session.chooses_precision and inputs.made_up:
        names = ", ".join(inputs.made_up)
        lines.append(f"  chosen on random numbers for {names}, so it is not kept; give real inputs by --load-inputs")
    return lines
