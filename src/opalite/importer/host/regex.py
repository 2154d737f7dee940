"""Regular expressions of models, in the syntax of RE2, which ONNX prescribes, matched in time linear in the text.

Python's `re` backtracks: a text of 60 characters can keep it, and the interpreter, busy for ever. The package
google-re2 (extra opalite-cl[text]) takes every expression; without it, `re` gets those alone in which it has nothing to
go back to.
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
# One character or class of characters, with how often it may come: as both libraries understand it.
_ITEM = re.compile(
    r"(?:\[\^?(?:\\[dswDSW\\\]\[^.-]|\[:\w+:\]|[\w .,;:!?@#%&/_<>=\"'-])+\]"
    r"|\\[dswDSW.\\\[\](){}+*?|^$]|[^\\\[\](){}+*?|^$])"
    r"(?P<count>[+*?]?)"
)


class Pattern:
    """One expression. `longest`: of the matches that begin at a place, the longest counts, as in POSIX."""

    def __init__(self, text: str, owner: str, longest: bool = False) -> None:
        """ModelError if `text` is no regular expression, ExtraError if it needs the package; `owner` is who has it."""
        self._compiled: Any = _by_re2(text, owner, longest)

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` is a match."""
        return self._compiled.fullmatch(text) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Beginning and end of each match that is not empty, from left to right."""
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
    """Whether `text` is a row of characters and classes of which only the last may repeat without end."""
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None or (item["count"] and item.end() < len(text)):
            return False
        at = item.end()
    return True
