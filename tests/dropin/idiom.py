"""What an idiom is: a function of the module, whose result is compared between onnxruntime and Opalite."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Function = Callable[[Any, Path], Any]

COMPARED_WITH = (1, 32)
"""The version of onnxruntime that the idioms and docs/dropin.md were compared with: Opalite does what that one does."""


@dataclass(frozen=True)
class Idiom:
    """A function of (module, folder). `refused`, `differs`: why Opalite refuses it, or gives something else."""

    run: Function
    refused: str = ""
    differs: str = ""

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def kind(self) -> str:
        return "refused" if self.refused else "differs" if self.differs else "same"


IDIOMS: list[Idiom] = []


def idiom(function: Function) -> Function:
    """One that gives the same."""
    IDIOMS.append(Idiom(function))
    return function


def refused(why: str) -> Callable[[Function], Function]:
    """One that Opalite refuses in a sentence."""

    def add(function: Function) -> Function:
        IDIOMS.append(Idiom(function, refused=why))
        return function

    return add


def differs(why: str) -> Callable[[Function], Function]:
    """One that gives something else, which docs/dropin.md says."""

    def add(function: Function) -> Function:
        IDIOMS.append(Idiom(function, differs=why))
        return function

    return add


@dataclass(frozen=True)
class Outcome:
    """What an idiom gave: a plain value, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None


def outcome(module: ModuleType, function: Function, folder: Path) -> Outcome:
    """Run an idiom; warnings are not what is compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Outcome(plain(function(module, folder)))
        except Exception as e:
            return Outcome(error=e)


def plain(value: Any) -> Any:
    """A value without the classes of either module: enumerations by name, OrtValues by contents."""
    if hasattr(value, "data_type") and hasattr(value, "element_type"):
        if not value.is_tensor():
            return value.data_type()
        return [value.data_type(), value.shape(), plain(value.numpy())]
    if isinstance(value, np.ndarray | np.generic | str | bytes | bool | int | float | None) and not isinstance(
        value, Enum
    ):
        return value
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "name") and hasattr(value, "value"):
        return value.name
    return type(value).__name__


def assert_same(got: Any, want: Any) -> None:
    """Equal, with the same types of arrays; floats to a rounding."""
    if isinstance(want, np.ndarray | np.generic):
        assert isinstance(got, np.ndarray | np.generic), f"{got!r} is no array like {want!r}"
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, want)
    elif isinstance(want, list):
        assert isinstance(got, list), f"{got!r} is no list like {want!r}"
        assert len(got) == len(want), f"{got!r} is not {want!r}"
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, float):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        assert got == want
