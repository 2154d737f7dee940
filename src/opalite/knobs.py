"""Every environment setting, declared once: name, type, default, help.

`opalite knobs` lists them. Read one with `knobs.get("OPALITE_DEBUG")`; a value that does not parse is an InputError
naming the variable, and a name that is none of these a warning at import. Settings of other programs are read and set
here too. Nothing else in the package touches `os.environ`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import InputError


@dataclass(frozen=True)
class Knob:
    """One setting. `parse` turns the environment's text into the value."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str

    def read(self) -> Any:
        """The value in force: the environment's, else the default."""
        text = os.environ.get(self.name)
        if text is None or text == "":
            return self.default
        try:
            return self.parse(text)
        except ValueError as e:
            raise InputError(f"{self.name}={text!r} is not valid: {e}. {self.help}") from None


_KNOBS: dict[str, Knob] = {}
_PREFIX = "OPALITE_"
_OF_TESTS = ("OPALITE_TEST_", "OPALITE_MODELS")  # what the tests of this package read


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


def _number(least: int) -> Callable[[str], int]:
    """A parser of whole numbers from `least` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("expected a whole number") from None
        if number < least:
            raise ValueError(f"expected {least} or more")
        return number

    return parse


def _share(text: str) -> float:
    """A parser of finite numbers above 0."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError("expected a number such as 0.001") from None
    if not 0 < number < math.inf:
        raise ValueError("expected a number above 0")
    return number


def _choice(words: Sequence[str]) -> Callable[[str], str]:
    """A parser of one of `words`, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return text.lower()

    return parse


def _names(text: str) -> frozenset[str]:
    """A set of words separated by commas."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())


PRECISIONS = ("fp32", "fp16", "fp16_fast", "int8", "auto")
MEMORIES = ("auto", "buffer", "image", "low", "normal")
LEVELS = ("none", "fast", "normal", "wide", "exhaustive")
HINTS = ("high", "normal", "low")
LINKERS = ("auto", "own", "system")
PLANNERS = ("best", "naive", "by_size", "by_breadth", "best_fit", "by_lifetime", "search")


def _declare(name: str, parse: Callable[[str], Any], default: Any, help_: str) -> None:
    _KNOBS[name] = Knob(name, parse, default, help_)


_declare("OPALITE_DEVICE", str, None, "Default device: id, index '0:1', 'cpu', 'gpu', vendor or part of a name.")
_declare("OPALITE_CACHE_DIR", str, None, "Folder of program binaries and tuning; default: the user's cache folder.")
_declare("OPALITE_CACHE", _flag, True, "0 keeps program binaries in memory only.")
_declare(
    "OPALITE_TRUST_BUNDLES", _flag, False, "1 takes the programs and machine code that bundles bring, as they are."
)
_declare("OPALITE_PLAN_CACHE", _flag, True, "0 keeps no plans of .onnx models in the cache folder.")
_declare(
    "OPALITE_CACHE_MB", _number(0), 2048, "Size cap of the cache folder in MiB; least recently used entries go first."
)
_declare("OPALITE_DEBUG", _number(0), 0, "Detail on stderr: 1 decisions, 2 passes, 3 launches, 4 generated sources.")
_declare("OPALITE_CHECK", _flag, False, "1 runs the graph checker after every pass.")
_declare("OPALITE_SYMBOLS", _flag, True, "0 imports open dimensions anew for every size, not as symbols.")
_declare(
    "OPALITE_STOP_AFTER", _number(0), None, "Stop graph rewriting after this many rewrites, to bisect a wrong result."
)
_declare("OPALITE_EXCLUDE_KERNELS", _names, frozenset(), "Kernels never to take, by name, separated by commas.")
_declare("OPALITE_PRECISION", _choice(PRECISIONS), "fp32", "Default precision: fp32, fp16, fp16_fast, int8 or auto.")
_declare(
    "OPALITE_TOLERANCE",
    _share,
    1e-3,
    "What precision auto lets half change an output by, as a share of the output's largest value.",
)
_declare(
    "OPALITE_TRY_HALF",
    _flag,
    False,
    "1 lets precision auto take half storage wherever it is accurate enough, also where it is not faster, as on CPUs.",
)
_declare(
    "OPALITE_MEMORY",
    _choice(MEMORIES),
    "auto",
    "Default memory: auto, buffer, image, low or normal.",
)
_declare("OPALITE_TUNE", _choice(LEVELS), "none", "Default tuning level: none, fast, normal, wide or exhaustive.")
_declare(
    "OPALITE_PLANNER",
    _choice(PLANNERS),
    "best",
    "Memory planner: naive, by_size, by_breadth, best_fit, by_lifetime, search, or best.",
)
_declare("OPALITE_BUFFER_ALIASING", _flag, True, "0 copies in every Concat and Slice, to look for a wrong result.")
_declare(
    "OPALITE_BUILD_THREADS",
    _number(1),
    None,
    "Threads or worker processes that build programs; default: up to 8 cores.",
)
_declare(
    "OPALITE_LINKER",
    _choice(LINKERS),
    "auto",
    "What links PoCL's kernels: system, the `ld` of the system; own, the one in this package; auto: own where the "
    "system has none that works.",
)
_declare("OPALITE_PROGRESS", _flag, True, "0 draws no bar on the terminal while programs are built.")
_declare(
    "OPALITE_TIERS",
    _flag,
    True,
    "0 has first runs wait until the programs made for a model are built; else general ones serve meanwhile.",
)
_declare(
    "OPALITE_STATS",
    str,
    None,
    "Where sessions write what they did, a line of JSON at their end: a file to append to, or 1 for stderr.",
)
_declare(
    "OPALITE_SERVE_KEY",
    str,
    None,
    "The key that clients of `opalite serve` have to send, where --api-key-file gives none.",
)
_declare(
    "OPALITE_PERFORMANCE",
    _choice(HINTS),
    None,
    "Clocks asked of the driver, where it takes such hints: high, normal or low; default: the driver's.",
)
_declare(
    "OPALITE_PRIORITY",
    _choice(HINTS),
    None,
    "Priority asked of the driver, where it takes such hints: high, normal or low; default: the driver's.",
)
_declare("OPALITE_FLUSH", _number(0), None, "Flush the queue every N launches, 0 never; default: by device.")
_declare(
    "OPALITE_MEGAKERNEL", _flag, True, "0 never joins the launches of a program that runs often into one, on PoCL."
)
_declare(
    "OPALITE_PERSISTENT",
    _flag,
    True,
    "0 never links the launches of a program that runs often into kernels that hold the whole GPU, on NVIDIA's.",
)
_declare(
    "OPALITE_SPIN_US",
    _number(0),
    1000,
    "Microseconds that worker threads look out for the next run before they sleep, on PoCL; 0 lets them sleep at once.",
)
_declare(
    "OPALITE_REPLAY",
    _flag,
    None,
    "1 replays recorded launches wherever the device has an extension for it, 0 never; default: by device.",
)


def get(name: str) -> Any:
    """The value of setting `name`, parsed; KeyError for a name that was never declared."""
    return _KNOBS[name].read()


def foreign(name: str) -> str:
    """A setting of another program, such as an OpenCL loader's; '' if it is not set."""
    return os.environ.get(name, "")


def unknown_names() -> dict[str, str]:
    """Names in the environment that begin as settings do and are none, each with the closest setting's, '' if none is
    close."""
    names = [n for n in os.environ if n.startswith(_PREFIX) and n not in _KNOBS and not n.startswith(_OF_TESTS)]
    if not names:
        return {}
    from difflib import get_close_matches  # as every import of the package comes here

    return {name: next(iter(get_close_matches(name, _KNOBS, 1, 0.75)), "") for name in names}


def warn_of_unknown_names() -> None:
    """One warning, if there are any: a setting that is misspelt does nothing, and nobody else would say so."""
    unknown = unknown_names()
    if not unknown:
        return
    words = [f"{name} (is it {near}?)" if near else name for name, near in unknown.items()]
    warnings.warn(
        f"the environment has {', '.join(words)}, which Opalite does not know: `opalite knobs` lists its settings",
        stacklevel=2,
    )


def environment(**changes: str) -> dict[str, str]:
    """The environment with `changes`, for a process to start, which need not warn of what this one warned of."""
    unknown = unknown_names()
    return {name: value for name, value in os.environ.items() if name not in unknown} | changes


def has_foreign(name: str) -> bool:
    """Whether a setting of another program is set, be it to nothing."""
    return name in os.environ


def set_foreign(name: str, value: str) -> None:
    """Set a setting of a library that this process has loaded or will load; processes that it starts inherit it."""
    os.environ[name] = value


def default_foreign(name: str, value: str) -> None:
    """Set it unless the user has."""
    os.environ.setdefault(name, value)


def unset_foreign(name: str) -> None:
    """Take back what `set_foreign` set."""
    os.environ.pop(name, None)


def all_knobs() -> Iterator[Knob]:
    """Every declared setting, in order of declaration."""
    return iter(_KNOBS.values())
