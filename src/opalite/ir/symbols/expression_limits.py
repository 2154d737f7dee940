"""Length limits of symbolic expressions.

An expression may contain each earlier size several times, so that texts could double with every layer. Sizes in a too
long expression are fixed (`Trace.dim`): they become plain numbers.
"""

from __future__ import annotations

import re

LONGEST = 4000
"""Most characters of an expression."""

MOST_FACTORS = 8
"""Most factors of one product."""

MOST_BITS = 128
"""Most bits of a plain number."""

_MOST_NESTED = 64
"""Deepest nesting of parentheses; Python accepts 200."""

_SYMBOL = r"\bs(\d+)\b"


def symbols_in(text: str) -> frozenset[int]:
    """The numbers of the symbols in an expression."""
    return frozenset(map(int, re.findall(_SYMBOL, text)))


def is_too_long(text: str) -> bool:
    """Whether an expression has too many characters or nests too deep."""
    if len(text) <= _MOST_NESTED or text.count("(") <= _MOST_NESTED:
        return len(text) > LONGEST
    return len(text) > LONGEST or _depth(text) > _MOST_NESTED


def _depth(text: str) -> int:
    depth = most = 0
    for character in text:
        if character == "(":
            depth += 1
            most = max(most, depth)
        elif character == ")":
            depth -= 1
    return most
