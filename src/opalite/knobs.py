"""Environment settings: name, type, default and help of each, and the only access of the package to `os.environ`.

`opalite knobs` lists them; `knobs.get("OPALITE_DEBUG")` reads one. An invalid value is an InputError that names the
variable. An unknown OPALITE_ name is a warning at import. Variables of other programs are read and set here too.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .errors import InputError
from .lazy_dataclass import dataclass


@dataclass(frozen=True)
class Knob:
    """One setting. parse: converts the variable's text to its value."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str

    def read(self) -> Any:
        """The value of the environment, else the default."""
        text = os.environ.get(self.name)
        if text is None or text == "":
            return self.default
        try:
            return self.parse(text)
        except ValueError as e:
            raise InputError(f"{self.name}={text!r} is not valid: {e}. {self.help}") from None


_KNOBS: dict[str, Knob] = {}
_PREFIX = "OPALITE_"
_TEST_PREFIXES = ("OPALITE_TEST_", "OPALITE_MODELS")  # variables of this package's tests


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


def _number(minimum: int) -> Callable[[str], int]:
    """A parser of whole numbers from `minimum` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("expected a whole number") from None
        if number < minimum:
            raise ValueError(f"expected {minimum} or more")
        return number

    return parse


def _positive(text: str) -> float:
    """Parse a finite number above 0."""
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
    """Parse words separated by commas."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())


def _paths(text: str) -> tuple[str, ...]:
    """Parse paths separated as in PATH."""
    return tuple(filter(None, text.split(os.pathsep)))


PRECISIONS = ("fp32", "fp16", "fp16_fast", "int8", "auto")
MEMORIES = ("auto", "buffer", "image", "low", "normal")
LEVELS = ("none", "fast", "normal", "wide", "exhaustive")
HINTS = ("high", "normal", "low")
LINKERS = ("auto", "own", "system")
STRATEGIES = ("auto", "queue", "replay", "megakernel", "persistent")
PLANNERS = ("best", "naive", "by_size", "by_breadth", "best_fit", "by_lifetime", "search")


def _declare(name: str, parse: Callable[[str], Any], default: Any, help_: str) -> None:
    _KNOBS[name] = Knob(name, parse, default, help_)


_declare("OPALITE_DEVICE", str, None, "Default device: id, index '0:1', 'cpu', 'gpu', vendor or part of a name.")
_declare(
    "OPALITE_AS_ONNXRUNTIME",
    _flag,
    False,
    "1 logs options without effect at debug level, as install_as_onnxruntime sets it.",
)
_declare("OPALITE_CACHE_DIR", str, None, "Folder of programs, plans and tuning; default: the user's cache folder.")
_declare("OPALITE_CACHE", _flag, True, "0 keeps program binaries in memory only.")
_declare(
    "OPALITE_TRUST_BUNDLES", _flag, False, "1 takes the programs and machine code that bundles bring, as they are."
)
_declare("OPALITE_PLAN_CACHE", _flag, True, "0 stores no plans of .onnx models in the cache folder.")
_declare(
    "OPALITE_CACHE_MB", _number(0), 2048, "Size cap of the cache folder in MiB; least recently used entries go first."
)
_declare("OPALITE_DEBUG", _number(0), 0, "Detail on stderr: 1 decisions, 2 passes, 3 launches, 4 generated sources.")
_declare("OPALITE_CHECK", _flag, False, "1 runs the graph checker after every pass.")
_declare("OPALITE_SYMBOLS", _flag, True, "0 imports the model again for each size of open dimensions.")
_declare(
    "OPALITE_STOP_AFTER", _number(0), None, "Stop graph rewriting after this many rewrites, to bisect a wrong result."
)
_declare("OPALITE_EXCLUDE_KERNELS", _names, frozenset(), "Names of kernels to exclude, separated by commas.")
_declare(
    "OPALITE_PREFER_KERNELS",
    _names,
    frozenset(),
    "Names of kernels, separated by commas, that compute every node that they do not refuse.",
)
_declare(
    "OPALITE_KERNELS",
    _paths,
    (),
    "Python files or modules that register operators and kernels, separated as in PATH; `--kernels` adds to it.",
)
_declare("OPALITE_PRECISION", _choice(PRECISIONS), "fp32", "Default precision: fp32, fp16, fp16_fast, int8 or auto.")
_declare(
    "OPALITE_TOLERANCE",
    _positive,
    1e-3,
    "Largest error that precision auto accepts from half, relative to the output's largest value.",
)
_declare(
    "OPALITE_TRY_HALF",
    _flag,
    False,
    "1 lets precision auto choose half storage wherever it is accurate enough, even if not faster, as on CPUs.",
)
_declare("OPALITE_MEMORY", _choice(MEMORIES), "auto", "Default memory: auto, buffer, image, low or normal.")
_declare("OPALITE_TUNE", _choice(LEVELS), "none", "Default tuning level: none, fast, normal, wide or exhaustive.")
_declare(
    "OPALITE_PLANNER",
    _choice(PLANNERS),
    "best",
    "Memory planner: naive, by_size, by_breadth, best_fit, by_lifetime, search, or best.",
)
_declare("OPALITE_BUFFER_ALIASING", _flag, True, "0 copies in every Concat and Slice, to bisect a wrong result.")
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
    "Linker of PoCL's kernels: system (`ld`), own (of this package), or auto: own if the system's does not work.",
)
_declare("OPALITE_PROGRESS", _flag, True, "0 shows no progress bar while programs are built.")
_declare(
    "OPALITE_TIERS",
    _flag,
    True,
    "0 makes first runs wait for the optimized programs instead of using baseline programs meanwhile.",
)
_declare(
    "OPALITE_STATS",
    str,
    None,
    "File to which each session appends its statistics at its end, a line of JSON; 1: stderr.",
)
_declare("OPALITE_SERVE_KEY", str, None, "API key of `opalite serve`, unless --api-key-file is given.")
_declare(
    "OPALITE_PERFORMANCE",
    _choice(HINTS),
    None,
    "Clock speed requested from drivers with such hints: high, normal or low; default: the driver's.",
)
_declare(
    "OPALITE_PRIORITY",
    _choice(HINTS),
    None,
    "Priority requested from drivers with such hints: high, normal or low; default: the driver's.",
)
_declare("OPALITE_FLUSH", _number(0), None, "Flush the queue every N launches, 0 never; default: by device.")
_declare(
    "OPALITE_STRATEGY",
    _choice(STRATEGIES),
    "auto",
    "How launches reach the device: queue enqueues them one by one, replay records them (Adreno), megakernel joins "
    "those of programs that run often (PoCL), persistent links them (NVIDIA); auto: what the device supports.",
)
_declare(
    "OPALITE_SPIN_US",
    _number(0),
    1000,
    "Microseconds for which worker threads spin after a run before they sleep, on PoCL; 0: no spinning.",
)


def get(name: str) -> Any:
    """The parsed value of setting `name`. Raises KeyError for an undeclared name."""
    return _KNOBS[name].read()


def override(name: str, value: str) -> Callable[[], None]:
    """Set a setting for this process and those that it starts. Returns a function that restores it."""
    assert name in _KNOBS
    before = os.environ.get(name)
    os.environ[name] = value

    def restore() -> None:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before

    return restore


def allows_strategy(name: str) -> bool:
    """Whether OPALITE_STRATEGY allows the strategy `name`."""
    return get("OPALITE_STRATEGY") in ("auto", name)


def foreign(name: str) -> str:
    """An environment variable of another program, such as an OpenCL loader; '' if it is not set."""
    return os.environ.get(name, "")


def unknown_names() -> dict[str, str]:
    """Undeclared OPALITE_ names in the environment, each with the closest declared name, '' if none is close."""
    names = [n for n in os.environ if n.startswith(_PREFIX) and n not in _KNOBS and not n.startswith(_TEST_PREFIXES)]
    if not names:
        return {}
    from difflib import get_close_matches  # imported late: every import of the package runs this function

    return {name: next(iter(get_close_matches(name, _KNOBS, 1, 0.75)), "") for name in names}


def warn_of_unknown_names() -> None:
    """Warn of undeclared OPALITE_ names, which have no effect."""
    unknown = unknown_names()
    if not unknown:
        return
    words = [f"{name} (is it {near}?)" if near else name for name, near in unknown.items()]
    warnings.warn(
        f"the environment has {', '.join(words)}, which Opalite does not know: `opalite knobs` lists its settings",
        stacklevel=2,
    )


def environment(**changes: str) -> dict[str, str]:
    """Environment of a child process, with `changes`, without undeclared names: the child need not warn again."""
    unknown = unknown_names()
    return {name: value for name, value in os.environ.items() if name not in unknown} | changes


def has_foreign(name: str) -> bool:
    """Return whether a variable of another program is set, even if empty."""
    return name in os.environ


def set_foreign(name: str, value: str) -> None:
    """Set a variable of a library in this process; child processes inherit it."""
    os.environ[name] = value


def default_foreign(name: str, value: str) -> None:
    """Set a variable unless the user has set it."""
    os.environ.setdefault(name, value)


def unset_foreign(name: str) -> None:
    """Unset a variable."""
    os.environ.pop(name, None)


def all_knobs() -> Iterator[Knob]:
    """Every declared setting, in order of declaration."""
    return iter(_KNOBS.values())
