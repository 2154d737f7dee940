"""How long an expression may become.

What a model computes of its sizes may hold each earlier size several times, so that texts would be twice as long with
every layer. The sizes in one that is too long are fixed (`Trace.dim`): from then on they are plain numbers.
"""

from __future__ import annotations

import re

LONGEST = 4000
"""Characters of an expression."""

MOST_FACTORS = 8
"""Of one product."""

MOST_BITS = 128
"""Of a plain number."""

_MOST_NESTED = 64
"""Parentheses within each other; Python takes 200."""

_SYMBOL = re.compile(r"\bs(\d+)\b")


def symbols_in(text: str) -> frozenset[int]:
    """The numbers of the symbols that an expression holds."""
    return frozenset(map(int, _SYMBOL.findall(text)))


def is_too_long(text: str) -> bool:
    """Whether an expression has too many characters, or too many parentheses within each other."""
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
