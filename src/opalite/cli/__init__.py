"""The command line `opalite COMMAND`. Each command is a module of this package that exports `command`."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import Any, NoReturn

import click

from ..cl.device.install_advice import loader_advice
from ..errors import OpaliteError
from ..interrupts import end, was_interrupted

_COMMANDS = {
    "bench": "Measure a model, alone or against other engines.",
    "cache": "List, clear, export or import program binaries and tuning.",
    "compare": "Plan a model for several devices that need not be here.",
    "compile": "Compile a model to an .opal bundle that runs without onnx.",
    "devices": "List OpenCL platforms and devices, and what each can do.",
    "doctor": "Check the OpenCL installation and advise on faults.",
    "generate": "Write text by a language model.",
    "inspect": "Show graph, placement, costs and memory of a model.",
    "kernel": "Write, test and time kernels of your own.",
    "knobs": "List every environment setting.",
    "lens": "Show what became of a model's nodes, in one page.",
    "profile": "Time every launch of a model.",
    "run": "Run a model on arrays, pictures or random input.",
    "serve": "Serve models over HTTP, to Triton's and KServe's clients.",
    "tune": "Search work-groups and kernel parameters for a model.",
    "verify": "Compare every node with the reference.",
}


class _Group(click.Group):
    """A click group that imports the module of a command on demand, so that `opalite --help` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"{__name__}.{name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in self.list_commands(ctx)])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            end()

    def invoke(self, ctx: click.Context) -> Any:
        _escape_unencodable()
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _leave_pipe()
        except KeyboardInterrupt:
            end()
        except Exception as e:
            if was_interrupted(e):
                end()
            if ctx.params.get("debug"):
                raise
            _fail(e)


def _leave_pipe() -> NoReturn:
    """End quietly after the reader of a pipe, such as `head`, has read enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at exit
    sys.exit(1)


def _escape_unencodable() -> None:
    """Escape characters that the output's encoding lacks (ASCII, a Windows code page)."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _fail(e: Exception) -> NoReturn:
    """End the command with a message instead of a traceback."""
    if isinstance(e, OpaliteError):
        message = str(e)
    elif isinstance(e, ImportError) and (advice := loader_advice(e)) is not None:
        message = advice
    elif isinstance(e, MemoryError):
        message = "out of memory on the host; use smaller inputs (--shape)"
    elif isinstance(e, OSError):
        message = f"{e.filename or 'writing the output'}: {e.strerror or e}"
    else:
        message = (
            f"internal error: {type(e).__name__}: {e}. This is a fault of Opalite, not of yours; "
            "`opalite --debug COMMAND ...` shows where it happened, for a report"
        )
    click.echo(f"opalite: {message}", err=True)
    sys.exit(1)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from .. import __version__

        click.echo(f"opalite {__version__}")
        ctx.exit()


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show Python tracebacks instead of one-line errors.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def main(debug: bool) -> None:
    """Run ONNX neural networks on any OpenCL device."""
