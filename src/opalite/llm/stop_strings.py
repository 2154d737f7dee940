"""StopStrings: strings at which a text ends, found as it is written."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import OptionError


class StopStrings:
    """Lets text through up to the first of some strings; what may be the beginning of one is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        if any(not s for s in strings):
            raise OptionError("a stop string has at least one character")
        self._strings = tuple(strings)
        self._held = ""

    def add(self, piece: str) -> tuple[str, bool]:
        """The text that may be told now, and whether a string was met, which is not told."""
        text = self._held + piece
        met = [i for s in self._strings if (i := text.find(s)) >= 0]
        if met:
            self._held = ""
            return text[: min(met)], True
        keep = max((_overlap(text, s) for s in self._strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def end(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, string: str) -> int:
    """How many characters at the end of `text` begin `string`."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
