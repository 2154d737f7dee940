"""Delegates, which LiteRT loads from libraries: refused in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

ADVICE = (
    "Opalite runs the whole model on an OpenCL device itself: leave delegates out, and choose the device by "
    "Interpreter(..., device='gpu') or OPALITE_DEVICE"
)


class Delegate:
    """LiteRT's class of loaded delegates; making one raises ValueError."""

    def __init__(self, library: str, options: Mapping[str, Any] | None = None) -> None:
        raise ValueError(f"the delegate '{library}' works in LiteRT's memory alone. {ADVICE}")


def load_delegate(library: str, options: Mapping[str, Any] | None = None) -> NoReturn:
    """Raise ValueError, as LiteRT does for a delegate that cannot be loaded; programs then run without."""
    Delegate(library, options)
    raise AssertionError
