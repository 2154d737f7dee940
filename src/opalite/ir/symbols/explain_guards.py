"""Sentences for people about a trace's guards."""

from __future__ import annotations

import re

from .symbol_trace import SYMBOLS_OWN, Guard, Trace

_SYMBOL = re.compile(r"\bs(\d+)\b")


def fixed_sizes(trace: Trace) -> list[str]:
    """A sentence for each fixed size: the size, and the node and line of code that fixed it."""
    sentences: dict[int, str] = {}
    for guard in trace.guards:
        found = set(map(int, _SYMBOL.findall(guard.text)))
        if guard.fixes and len(found) == 1:
            (number,) = found
            sentences.setdefault(
                number, f"size {trace.symbols[number].hint} of {trace.names[number]} is fixed {_by(guard)}"
            )
    return [sentences[number] for number in sorted(sentences)]


def conditions(trace: Trace) -> list[str]:
    """A sentence for each other guard, with the sizes' names."""
    found = []
    for guard in trace.guards:
        numbers = set(map(int, _SYMBOL.findall(guard.text)))
        if not (guard.fixes and len(numbers) == 1) and guard.where != SYMBOLS_OWN:
            text = _SYMBOL.sub(lambda m: f"[{trace.names[int(m[1])]}]", guard.text)
            found.append(f"{text}, asked {_by(guard)}")
    return found


def _by(guard: Guard) -> str:
    return f"by {guard.node} ({guard.where})" if guard.node else f"by {guard.where}"
