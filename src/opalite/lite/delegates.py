"""Delegates, which LiteRT loads from libraries: refused in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

ADVICE = (
    "Opalite runs the whole model on an OpenCL device itself: leave delegates out, and choose the device by "
    "Interpreter(..., device='gpu') or OPALITE_DEVICE"
)


class DelegateError(ValueError, OSError):
    """There are no delegates. Programs that fall back expect either: LiteRT raises OSError for a missing library."""


class Delegate:
    """LiteRT's class of loaded delegates; making one raises DelegateError."""

    def __init__(self, library: str, options: Mapping[str, Any] | None = None) -> None:
        raise DelegateError(f"the delegate '{library}' works in LiteRT's memory alone. {ADVICE}")


def load_delegate(library: str, options: Mapping[str, Any] | None = None) -> NoReturn:
    """Raise DelegateError, as for a library that cannot be loaded; programs then run without."""
    Delegate(library, options)
    raise AssertionError
