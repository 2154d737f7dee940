"""Options shared by several commands. Their values are no parameters of a command: `option_value` returns them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from .. import knobs
from ..errors import InputError
from ..knobs import HINTS
from ..media.preprocess import COLORS, FITS, LAYOUTS, PRESETS

F = TypeVar("F", bound=Callable[..., Any])

PRECISION_HELP = "fp32, fp16, fp16_fast, int8, auto or a policy's .json.  [default: OPALITE_PRECISION, else fp32]"
MEMORY_HELP = "Tensors in auto, buffer or image; weights low (8 bits) or normal."
_SHAPE = re.compile(r"^(?P<name>.*):(?P<dims>\d+(x\d+)*|scalar)$")
_OF_SESSION = ("device", "precision", "tolerance", "memory", "performance", "priority", "tune", "strict", "trust")


class Real(click.FloatRange):
    """A finite number in a range; click's own type accepts NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


def parse_shapes(items: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parse `x:1x3x224x224` to {"x": (1, 3, 224, 224)} and `s:scalar` to shape (). InputError."""
    shapes: dict[str, tuple[int, ...]] = {}
    for item in items:
        m = _SHAPE.match(item)
        if m is None:
            raise InputError(f"--shape {item!r} is not NAME:DIMS; write for example --shape input:1x3x224x224")
        dims = m["dims"]
        shapes[m["name"]] = () if dims == "scalar" else tuple(int(d) for d in dims.split("x"))
    return shapes


def join(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """A decorator that adds several options, in the order of the help."""

    def decorate(fn: F) -> F:
        for option in reversed(options):
            fn = option(fn)
        return fn

    return decorate


def option_value(name: str, default: Any = None) -> Any:
    """The value of a shared option in the running command; `default` if no command runs, or if it lacks the option."""
    context = click.get_current_context(silent=True)
    return default if context is None else context.meta.get(f"{__name__}.{name}", default)


def session_kwargs() -> dict[str, Any]:
    """Keyword arguments of InferenceSession for the shared options of the running command."""
    return {name: value for name in _OF_SESSION if (value := option_value(name)) is not None}


def shared_option(
    *names: str, checked: Callable[[click.Context, click.Parameter, Any], Any] | None = None, **settings: Any
) -> Callable[[F], F]:
    """An option whose value `option_value` returns. checked: called with the value first; returns it."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        context.meta[f"{__name__}.{option.name}"] = value if checked is None else checked(context, option, value)

    return click.option(*names, expose_value=False, callback=keep, **settings)


def _keep_model(context: click.Context, argument: click.Parameter, value: str) -> str:
    context.meta[f"{__name__}.model"] = value
    return value


def _hint(name: str, what: str) -> Callable[[F], F]:
    return shared_option(
        f"--{name}", type=click.Choice(HINTS), help=f"{what}: high, normal or low, where the driver takes such hints."
    )


def inputs_option(what: str) -> Callable[[F], F]:
    """--load-inputs. what: its help."""
    return shared_option("--load-inputs", "--input", "-i", "files", multiple=True, metavar="[NAME=]FILE", help=what)


def _add_kernels(context: click.Context, _: click.Parameter, files: tuple[str, ...]) -> None:
    """Add files of --kernels to OPALITE_KERNELS, for this command and the processes that it starts."""
    if not files:
        return
    if missing := [f for f in files if f.endswith(".py") and not os.path.isfile(f)]:
        raise InputError(f"--kernels: there is no file '{missing[0]}'")
    names = [os.path.abspath(f) if f.endswith(".py") else f for f in files]
    context.call_on_close(knobs.override("OPALITE_KERNELS", os.pathsep.join((*knobs.get("OPALITE_KERNELS"), *names))))


kernels_option = click.option(
    "--kernels",
    multiple=True,
    metavar="FILE.py",
    expose_value=False,
    callback=_add_kernels,
    help="A Python file or module that registers operators and kernels.",
)
model_argument = join(click.argument("model", type=click.Path(dir_okay=True), callback=_keep_model), kernels_option)
seed_option = shared_option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random inputs."
)
file_option = join(
    inputs_option("An input: .npy, .npz, .pb, .wav or a picture. Inputs without a file are random."),
    shared_option(
        "--preprocess",
        metavar="NAME|FILE.json",
        help=f"Conversion of pictures: {', '.join(PRESETS)} or a file.  [default: as the model says, else guessed]",
    ),
    shared_option(
        "--fit", type=click.Choice(FITS), help="How to fit a picture to the size of an input.  [default: stretch]"
    ),
)
picture_options = join(
    shared_option("--mean", help="Mean to subtract from scaled pixels: one number, or one for each channel."),
    shared_option("--std", help="Standard deviation to divide pixels by: one number, or one for each channel."),
    shared_option("--scale", type=Real(), help="Factor for pixels (0..255), applied first.  [default: 1/255]"),
    shared_option(
        "--colors", "--order", type=click.Choice(COLORS, case_sensitive=False), help="Order of the colour channels."
    ),
    shared_option(
        "--layout", type=click.Choice(LAYOUTS, case_sensitive=False), help="Order of the axes of a picture's tensor."
    ),
    shared_option("--threshold", type=Real(min=0, max=1), help="Lowest score of a box to show.  [default: 0.3]"),
    shared_option("--rate", type=click.IntRange(min=1), help="Sample rate of sound that the model expects, in hertz."),
    shared_option(
        "--labels",
        type=click.Path(),
        help="File with one label a line.  [default: the model's, or labels.txt beside it]",
    ),
)
shape_option = shared_option(
    "--shape", "shapes", multiple=True, metavar="NAME:DIMS", help="Input shape, e.g. x:1x3x224x224."
)
precision_option = shared_option("--precision", help=PRECISION_HELP)
tolerance_option = shared_option(
    "--tolerance",
    type=Real(min=0, min_open=True),
    metavar="SHARE",
    help="Largest error of outputs for precision auto to use fp16, relative to their magnitude.  [default: 0.001]",
)
strict_option = shared_option("--strict", is_flag=True, help="Refuse models with nodes that would run on the host.")
precision_options = join(
    shared_option("--device", help="Device id, index '0:1', cpu, gpu, vendor or part of a name."),
    precision_option,
    tolerance_option,
    shared_option("--memory", help=MEMORY_HELP),
)
device_options = join(
    precision_options,
    _hint("performance", "Clock rates of the device"),
    _hint("priority", "Priority of this work on the device"),
    shared_option("--tune", help="Tuning level: none, fast, normal, wide, exhaustive."),
)
session_options = join(
    device_options,
    shape_option,
    strict_option,
    shared_option(
        "--trust",
        is_flag=True,
        default=None,
        help="Use the programs and machine code of a bundle without checks.",
    ),
)
