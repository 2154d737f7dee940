"""Options shared by several commands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ..errors import InputError
from ..knobs import HINTS

F = TypeVar("F", bound=Callable[..., Any])

PRECISION_HELP = "fp32, fp16, fp16_fast, int8, auto or a policy's .json.  [default: OPALITE_PRECISION, else fp32]"
_SHAPE = re.compile(r"^(?P<name>.*):(?P<dims>\d+(x\d+)*|scalar)$")


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


def session_options(fn: F) -> F:
    """--shape, --strict, --trust and those of `device_options`."""
    strict = click.option("--strict", is_flag=True, help="Refuse models with nodes that would run on the host.")
    trust = click.option(
        "--trust",
        is_flag=True,
        default=None,
        help="Take the programs and the machine code that a bundle brings, as they are.",
    )
    return device_options(shape_option(strict(trust(fn))))


def shape_option(fn: F) -> F:
    """--shape."""
    option = click.option(
        "--shape", "shapes", multiple=True, metavar="NAME:DIMS", help="Input shape, e.g. x:1x3x224x224."
    )
    return option(fn)


def _keep_hint(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[f"{__name__}.{option.name}"] = value


def hint_options(fn: F) -> F:
    """--performance, --priority, which `session_kwargs` fetches."""
    of_driver = ": high, normal or low, where the driver takes such hints."
    for name, what in (("priority", "Who comes first on the device"), ("performance", "The device's clocks")):
        fn = click.option(
            f"--{name}", type=click.Choice(HINTS), expose_value=False, callback=_keep_hint, help=what + of_driver
        )(fn)
    return fn


def device_options(fn: F) -> F:
    """--device, --precision, --tolerance, --memory, --performance, --priority, --tune."""
    tune = click.option("--tune", default=None, help="Tuning level: none, fast, normal, wide, exhaustive.")
    return precision_options(hint_options(tune(fn)))


tolerance_option = click.option(
    "--tolerance",
    type=Real(min=0, min_open=True),
    default=None,
    metavar="SHARE",
    help="What precision auto lets half change an output by, relative to its largest value.  [default: 0.001]",
)


def precision_options(fn: F) -> F:
    """--device, --precision, --tolerance, --memory."""
    for option in (
        click.option(
            "--memory", default=None, help="Tensors in auto, buffer or image; weights low (8 bits) or normal."
        ),
        tolerance_option,
        click.option("--precision", default=None, help=PRECISION_HELP),
        click.option("--device", default=None, help="Device id, index '0:1', cpu, gpu, vendor or part of a name."),
    ):
        fn = option(fn)
    return fn


def seed_option(fn: F) -> F:
    """--seed."""
    option = click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random inputs."
    )
    return option(fn)


def session_kwargs(
    device: str | None, precision: str | None, tolerance: float | None, memory: str | None, tune: str | None
) -> dict[str, Any]:
    """Keyword arguments of InferenceSession for the given options of a command."""
    given: dict[str, Any] = {
        "device": device,
        "precision": precision,
        "tolerance": tolerance,
        "memory": memory,
        "tune": tune,
    }
    kept = click.get_current_context().meta
    given |= {name: kept.get(f"{__name__}.{name}") for name in ("performance", "priority")}
    return {k: v for k, v in given.items() if v is not None}


def model_argument(fn: F) -> F:
    """The MODEL argument: an .onnx file or an .opal bundle."""
    return click.argument("model", type=click.Path(dir_okay=True))(fn)
