"""`opalite generate`: streams text from a language model, and prints metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..errors import InputError
from ..interrupts import unwatched
from ..ir.constants.int8_rows import CACHES
from .console import make_console
from .json_report import json_options, report, wants_json
from .shared_options import device_options, kernels_option, session_kwargs

if TYPE_CHECKING:
    from ..llm.generator import Generator
    from ..llm.token_stream import Stream

_SAMPLED = "  [default: the model's generation_config.json]"


@click.command()
@click.argument("model", type=click.Path())
@kernels_option
@click.option("-p", "--prompt", default=None, help="Text to continue.  [default: read from the standard input]")
@click.option(
    "--chat", is_flag=True, help="Treat the prompt as a user's message; without -p, each line of the standard input."
)
@click.option("--system", default=None, metavar="TEXT", help="System message of a chat.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=None, help=f"Tokens to write at most.{_SAMPLED}")
@click.option("--temperature", type=float, default=None, help=f"Divides logits; 0 takes the likeliest.{_SAMPLED}")
@click.option("--top-k", type=int, default=None, help=f"Choose from the K likeliest tokens; 0: from all.{_SAMPLED}")
@click.option("--top-p", type=float, default=None, help=f"Choose from the likeliest that sum to P.{_SAMPLED}")
@click.option("--min-p", type=float, default=None, help=f"Choose from those P times as likely as the first.{_SAMPLED}")
@click.option("--repetition-penalty", type=float, default=None, help=f"Makes tokens that occur less likely.{_SAMPLED}")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Equal seeds give equal texts.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times.")
@click.option("--ignore-end", is_flag=True, help="Continue after end-of-text tokens.")
@click.option("--file", default=None, metavar="NAME", help="Decoder's file, if the folder has several.")
@click.option(
    "--load-inputs",
    "-i",
    "files",
    multiple=True,
    metavar="NAME=FILE",
    help="An input of an encoder that does not read text, from an .npy file.",
)
@click.option("--audio", default=None, metavar="FILE.wav", help="Sound for an audio encoder, such as Whisper's.")
@click.option(
    "--cache", type=click.Choice(CACHES), default="model", help="Element type of KV caches: the model's, or int8."
)
@json_options
@device_options
def command(
    model: str,
    prompt: str | None,
    chat: bool,
    system: str | None,
    stop: tuple[str, ...],
    file: str | None,
    files: tuple[str, ...],
    audio: str | None,
    cache: str,
    **wanted: Any,
) -> None:
    """Generate text after a prompt by the language model in the folder MODEL.

    optimum or onnxruntime-genai write such folders: .onnx files, tokenizer.json and configurations. hf:OWNER/NAME is
    downloaded from the Hugging Face Hub.
    Needs the extra: pip install 'opalite-cl[llm]'.
    """
    from ..llm.generator import Generator

    inputs = _load(files)
    with Generator(model, file=file, cache=cache, **session_kwargs()) as generator:
        results: list[dict[str, Any]] = []
        bandwidth = 0.0
        # Of a sound longer than the encoder hears at once, the text of each window.
        windows = [None] if audio is None else generator.windows(audio)
        prompts = _prompts(prompt if audio is None else prompt or "", chat, system)
        for text, window in ((t, w) for t in prompts for w in windows):
            stream = generator.stream(text, stop=stop, audio=window, encoder_inputs=inputs, **wanted)
            if isinstance(text, str) and audio is None:
                click.echo(text, nl=False, err=wants_json())
            written = _show(stream, ends_text=chat and prompt is None)
            if isinstance(text, list):
                text.append({"role": "assistant", "content": written})
            bandwidth = bandwidth or generator.measure_bandwidth()
            _print(generator, stream, bandwidth)
            metrics = {**stream.metrics.to_raw(), "bandwidth_share": stream.metrics.bandwidth_share(bandwidth)}
            results.append({"text": written, "tokens": stream.tokens, "reason": stream.reason, "metrics": metrics})
    report({"model": model, "device": generator.session.device.title, "bandwidth": bandwidth, "texts": results})


def _prompts(prompt: str | None, chat: bool, system: str | None) -> Iterator[str | list[dict[str, Any]]]:
    """The prompts: one text, or a chat with a line of the standard input for each turn."""
    if not chat and system is None:
        text = sys.stdin.read() if prompt is None else prompt
        yield text.rstrip("\n") if prompt is None else text
        return
    messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    if prompt is not None:
        yield [*messages, {"role": "user", "content": prompt}]
        return
    while True:
        if sys.stdin.isatty():
            click.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            messages.append({"role": "user", "content": line.rstrip("\n")})
            yield messages


def _show(stream: Stream, ends_text: bool) -> str:
    """Print the pieces as they are generated. ends_text: Ctrl-C ends the text, and the chat goes on."""
    written = []
    with unwatched() if ends_text else nullcontext():
        try:
            for piece in stream:
                click.echo(piece, nl=False, err=wants_json())
                written.append(piece)
        except KeyboardInterrupt:
            stream.close()
            if not ends_text:
                raise
    click.echo(err=wants_json())
    return "".join(written)


def _print(generator: Generator, stream: Stream, bandwidth: float) -> None:
    """Print the metrics on the error stream, so that the text can be piped."""
    console = make_console()
    console.stderr = True
    f = stream.metrics
    reused = f", {f.reused_tokens} known already" if f.reused_tokens else ""
    lines = [
        f"device   {generator.session.device.title}",
        f"prefill  {f.prefill_rate:,.1f} tokens/s ({f.prompt_tokens} tokens{reused})",
        f"decode   {f.decode_rate:,.1f} tokens/s ({f.tokens} tokens, ended by {stream.reason})",
        f"first    {f.first_token_s * 1e3:,.1f} ms to the first token",
        f"memory   weights {f.weight_bytes / 1e6:,.1f} MB, cache {f.cache_bytes / 1e6:,.2f} MB",
        f"reading  {f.bandwidth_share(bandwidth):.1%} of the device's {bandwidth / 1e9:,.1f} GB/s",
    ]
    for line in lines:
        console.print(line, soft_wrap=True)


def _load(files: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for item in files:
        name, _, path = item.partition("=")
        if not name or not path:
            raise InputError(f"--load-inputs {item!r} is not NAME=FILE; write for example input_features=sound.npy")
        try:
            found[name] = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError) as e:
            raise InputError(f"{path} cannot be read as an .npy file: {e}") from e
    return found
