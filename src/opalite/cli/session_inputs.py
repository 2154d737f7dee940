"""Inputs of a command's session, and the choice of precision 'auto' on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ..media.picture_reader import input_specs
from ..plan.bundle.bundle import is_bundle
from .input_files import Inputs, load_inputs
from .media_files import MediaFiles, media_files
from .shared_options import option_value, parse_shapes

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession


def session_inputs(session: InferenceSession, media: MediaFiles | None = None) -> Inputs:
    """Load the inputs that the options --load-inputs, --shape and --seed give. InputError for inputs but tensors.

    media: reads pictures and sounds, and remembers them.
    """
    media = media or session_media(session)
    return load_inputs(
        option_value("files"),
        media.reader.inputs,
        parse_shapes(option_value("shapes")),
        media,
        option_value("seed", 0),
    )


def session_media(session: InferenceSession) -> MediaFiles:
    """A reader of pictures and sounds for the command's model."""
    model = option_value("model")
    return media_files(model, input_specs(session), session.get_modelmeta().custom_metadata_map, is_bundle(model))


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
