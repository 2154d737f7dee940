"""Tokenizer for one line of the graph's text form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from opalite.errors import InputError

PLAIN_NAME = re.compile(r"[\w./]+")

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(
    rf"\s*(?:(?P<comment>\#.*)|(?P<value>%(?:{_QUOTED}|[\w./]+))|(?P<string>{_QUOTED})|(?P<place>@[\w/]+)"
    r"|(?P<number>-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf\b|nan\b))|(?P<word>[\w./]+)|(?P<mark>[-()\[\]{},:=]))"
)
_T = TypeVar("_T")


class Tokens:
    """A reader of one line from left to right; `where` begins every message."""

    def __init__(self, line: str, where: str) -> None:
        self.where = where
        self._line = line.rstrip()
        self._items: list[tuple[str, str, int]] = []  # kind, text, column
        self._next = 0
        at = 0
        while at < len(self._line):
            match = _TOKEN.match(self._line, at)
            if match is None:
                raise self.problem(f"'{self._line[at:].strip()}' is not understood")
            assert match.lastgroup is not None
            self._items.append((match.lastgroup, match[match.lastgroup], at))
            at = match.end()

    def problem(self, what: str) -> InputError:
        """An error about this line."""
        return InputError(f"{self.where}: {what}\n  {self._line}")

    def error(self, expected: str) -> InputError:
        """An error about an unexpected token."""
        rest = self._line[self._items[self._next][2] :].strip() if self._next < len(self._items) else "the line's end"
        return self.problem(f"expected {expected}, got '{rest}'")

    def at_end(self) -> bool:
        """Whether only a comment is left."""
        return self._next == len(self._items) or self._items[self._next][0] == "comment"

    def comment(self) -> str:
        """The text of the comment at the line's end, or nothing."""
        kind, text, _ = self._items[-1]
        return text[1:].strip() if kind == "comment" else ""

    def _accept(self, kind: str, text: str | None = None) -> str | None:
        if self._next < len(self._items):
            found, said, _ = self._items[self._next]
            if found == kind and text in (None, said):
                self._next += 1
                return said
        return None

    def comes(self, mark: str, after: int = 0) -> bool:
        """Whether the token `after` positions ahead is `mark`."""
        at = self._next + after
        return at < len(self._items) and self._items[at][:2] == ("mark", mark)

    def accept(self, mark: str) -> bool:
        """Consume `mark` if it is next."""
        return self._accept("mark", mark) is not None

    def accept_word(self, word: str) -> bool:
        """Consume `word` if it is next."""
        return self._accept("word", word) is not None

    def accept_string(self) -> str | None:
        """Consume a quoted string if one is next."""
        text = self._accept("string")
        return None if text is None else str(json.loads(text))

    def accept_number(self) -> int | float | None:
        """Consume a number if one is next; with a point, exponent, inf or nan it is a float."""
        text = self._accept("number")
        if text is None:
            return None
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def expect(self, mark: str) -> None:
        """Consume `mark`; an error if it is not next."""
        if not self.accept(mark):
            raise self.error(f"'{mark}'")

    def expect_word(self, word: str) -> None:
        """Consume `word`; an error if it is not next."""
        if not self.accept_word(word):
            raise self.error(f"'{word}'")

    def word(self) -> str:
        """A bare word."""
        text = self._accept("word")
        if text is None:
            raise self.error("a word")
        return text

    def name(self) -> str:
        """A name: a bare word or number, or a quoted string."""
        text = self.accept_string()
        return text if text is not None else self._accept("number") or self.word()

    def value(self) -> str:
        """The name of a %value."""
        text = self._accept("value")
        if text is None:
            raise self.error("a %value")
        return str(json.loads(text[1:])) if text[1] == '"' else text[1:]

    def place(self) -> str | None:
        """The text after @, if there is one."""
        text = self._accept("place")
        return None if text is None else text[1:]

    def integer(self) -> int:
        """A whole number."""
        before = self._next
        number = self.accept_number()
        if not isinstance(number, int):
            self._next = before
            raise self.error("a whole number")
        return number

    def items(self, item: Callable[[Tokens], _T], until: str | None) -> list[_T]:
        """Items separated by commas, up to the mark `until`, which is consumed (None: to the line's end)."""
        found: list[_T] = []
        while not (self.at_end() if until is None else self.accept(until)):
            if found:
                self.expect(",")
            found.append(item(self))
        return found
