"""Regular expressions in RE2 syntax, which ONNX prescribes, matched in time linear in the text.

Python's `re` backtracks: a text of 60 characters can block the interpreter forever. The package google-re2 (extra
opalite-cl[text]) handles every expression. Without it, `re` is used for expressions that cannot backtrack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...errors import ExtraError, ModelError
from ...extras import need

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
# One character or character class with a quantifier, in a form that both libraries parse alike.
_ITEM = re.compile(
    r"(?:\[\^?(?:\\[dswDSW\\\]\[^.-]|\[:\w+:\]|[\w .,;:!?@#%&/_<>=\"'-])+\]"
    r"|\\[dswDSW.\\\[\](){}+*?|^$]|[^\\\[\](){}+*?|^$])"
    r"(?P<count>[+*?]?)"
)


class Pattern:
    """One compiled expression. longest: among matches that begin at a position, take the longest, as in POSIX."""

    def __init__(self, text: str, owner: str, longest: bool = False) -> None:
        """Compile `text`; ModelError if it is invalid, ExtraError if it needs google-re2. owner: name for messages."""
        self._compiled: Any = _by_re2(text, owner, longest)

    def matches(self, text: str) -> bool:
        """Whether all of `text` matches."""
        return self._compiled.fullmatch(text) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each non-empty match, from left to right."""
        return (m.span() for m in self._compiled.finditer(text) if m.end() > m.start())


def _by_re2(text: str, owner: str, longest: bool) -> Any:
    what = f"{owner} has the pattern {text!r}, which"
    try:
        re2 = need("re2", what, "text")
    except ExtraError:
        if not _is_plain(text):
            raise
        return re.compile(re.sub(r"\[:(\w+):\]", lambda m: _POSIX.get(m[1], m[0]), text), re.ASCII)
    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    try:
        return re2.compile(text, options)
    except re2.error as e:
        why = e.args[0] if e.args else ""
        raise ModelError(
            f"{what} is not a regular expression of RE2: {why.decode() if isinstance(why, bytes) else why}"
        ) from e


def _is_plain(text: str) -> bool:
    """Whether `text` is a sequence of characters and classes of which only the last has a quantifier."""
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None or (item["count"] and item.end() < len(text)):
            return False
        at = item.end()
    return True
