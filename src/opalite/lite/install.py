"""install: `import tflite_runtime` and `import ai_edge_litert` give Opalite, for packages that import these."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

from .. import knobs
from ..errors import OptionError

PACKAGES = ("tflite_runtime", "ai_edge_litert")
"""Packages whose module `interpreter` becomes Opalite's."""


def install(device: str | None = None) -> None:
    """Have the packages' Interpreter be Opalite's in this process, and `tensorflow.lite` where there is no tensorflow.

    device: as OPALITE_DEVICE. Raises OptionError if one of the packages was imported before.
    """
    from . import interpreter

    early = [n for n in PACKAGES if getattr(sys.modules.get(f"{n}.interpreter"), "Interpreter", None) is not None]
    if any(sys.modules[f"{n}.interpreter"] is not interpreter for n in early):
        raise OptionError(f"{early[0]} has been imported already: call opalite.lite.install() before")
    if device is not None:
        knobs.override("OPALITE_DEVICE", device)
    for name in PACKAGES:
        spec = None if name in sys.modules else find_spec(name)
        package = ModuleType(name)
        # Other modules of an installed package stay what they are.
        package.__path__ = list((spec.submodule_search_locations if spec is not None else None) or ())
        package.interpreter = interpreter  # type: ignore[attr-defined]
        sys.modules[name] = package
        sys.modules[f"{name}.interpreter"] = interpreter
    if "tensorflow" not in sys.modules and find_spec("tensorflow") is None:
        lite = sys.modules[__package__]
        made = ModuleType("tensorflow")
        made.__path__ = []
        made.lite = lite  # type: ignore[attr-defined]
        sys.modules["tensorflow"], sys.modules["tensorflow.lite"] = made, lite
