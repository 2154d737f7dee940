"""`opalite run -i film.mp4`, `-i 0`: a model on each frame of a film or a camera."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..interrupts import end, unwatched
from ..media.drawing import draw
from ..media.results import Result
from ..media.video import FILMS, FilmWriter, frames, is_video
from .console import make_console, print_lines
from .json_report import report
from .media_files import MediaFiles
from .media_results import check_guess, print_result, recognize_outputs, result_record
from .shared_options import option_value, parse_shapes

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession

film_option = click.option(
    "--frames", type=click.IntRange(min=1), help="Number of frames of a film or a camera to run."
)
_LINE_EVERY = 1.0  # seconds


def film_source() -> str | None:
    """The film or camera that --load-inputs names, without NAME=; None if it names none. InputError for two."""
    files = option_value("files") or ()
    films = [f for f in files if is_video(f.rpartition("=")[2])]
    if films and len(files) > 1:
        raise InputError(f"{films[0]}: a film or a camera must be the only input that is given")
    return films[0] if films else None


def run_film(
    session: InferenceSession, media: MediaFiles, film: str, save: str | None, most: int | None, top: int | None
) -> None:
    """Run a model on frames one after the other; say results and frames a second; write them to `save`, a film."""
    name, _, source = film.rpartition("=")
    if save is not None and Path(save).suffix.lower() not in FILMS:
        raise InputError(f"{save}: frames are written to a film ({', '.join(FILMS)})")
    inputs = media.reader.inputs
    if not name:
        name = inputs[0].name if inputs else ""
    if [i.name for i in inputs] != [name]:
        raise InputError(
            f"a film needs a model with one input; this one has {', '.join(i.name for i in inputs) or 'none'}"
        )
    console, shapes = make_console(), parse_shapes(option_value("shapes"))
    names = [o.name for o in session.get_outputs()]
    console.print(f"device   {session.device.title}")
    count, spent, said, begun = 0, 0.0, 0.0, 0.0
    result: Result | None = None
    writer = FilmWriter(Path(save)) if save is not None else None
    is_interrupted, finishing = False, ExitStack()
    try:
        for frame in frames(source, most):
            start = time.perf_counter()
            given = media.pictures[name] = media.reader.read(frame, name, shapes)
            outputs = session.run(None, {name: given.array})
            spent += time.perf_counter() - start
            result = recognize_outputs(media, dict(zip(names, outputs, strict=True)), top)
            if count == 0:
                feeds = {name: given.array}
                if check_guess(session, media, feeds, result):
                    outputs = session.run(None, feeds)
                    result = recognize_outputs(media, dict(zip(names, outputs, strict=True)), top)
                print_lines(console, media.lines())
                with console.status("building the programs made for this model"):
                    session.settle()
                spent, begun = 0.0, time.perf_counter()
                if writer is not None:
                    finishing.enter_context(unwatched())  # Ctrl-C ends a recording, whose file is then finished
            if writer is not None:
                given = media.pictures[name]
                writer.write(draw(result, given.picture, given.placement) if result is not None else frame)
            if result is not None and (count == 0 or time.perf_counter() - said > _LINE_EVERY):
                said = time.perf_counter()
                console.print(f"frame    {count}")
                print_result(console, result)
            count += 1
    except KeyboardInterrupt:
        is_interrupted = True
        console.print()
    finally:
        if writer is not None:
            writer.close()
        finishing.close()
    timed = count - 1
    whole = time.perf_counter() - begun
    rates = {"model_frames_s": timed / spent, "frames_s": timed / whole} if timed > 0 else {}
    head = {
        "model": option_value("model"),
        "device": session.device.title,
        "device_id": session.device.id,
        "frames": count,
    }
    if not report(head | rates | result_record(media, result)):
        if timed > 0:
            console.print(
                f"speed    {timed / spent:.1f} frames a second of the model ({1e3 * spent / timed:.2f} ms each), "
                f"{timed / whole:.1f} with reading and drawing; {count} frames"
            )
        if save is not None and count:
            console.print(f"wrote    {save}")
    if is_interrupted:
        end()
