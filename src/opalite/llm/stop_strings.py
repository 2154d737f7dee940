"""StopStrings: finds strings that end a text while it is generated."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import OptionError


class StopStrings:
    """Passes text up to the first stop string; a possible beginning of one is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        if any(not s for s in strings):
            raise OptionError("a stop string has at least one character")
        self._strings = tuple(strings)
        self._held = ""

    def add(self, piece: str) -> tuple[str, bool]:
        """Add text; return (text to emit, whether a stop string was found). The stop string is not emitted."""
        text = self._held + piece
        met = [i for s in self._strings if (i := text.find(s)) >= 0]
        if met:
            self._held = ""
            return text[: min(met)], True
        keep = max((_overlap(text, s) for s in self._strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def end(self) -> str:
        """Return the text that was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, string: str) -> int:
    """Return how many characters at the end of `text` are a beginning of `string`."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
