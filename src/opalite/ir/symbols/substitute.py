"""Substitution of sizes for symbols: by plain numbers (Substituted), or by new hints in a new trace (Moved)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from .compile_expressions import compile_numbers
from .symbol_trace import Trace
from .symbolic_float import SymbolicFloat
from .symbolic_int import SymbolicInt


class Substituted:
    """A function that replaces symbolic numbers by plain ones for given sizes.

    The caller has checked the guards for these sizes.
    """

    def __init__(self, trace: Trace, sizes: Sequence[int]) -> None:
        """sizes: the values of the trace's symbols, in order."""
        self._count = len(trace.symbols)
        self._sizes = tuple(sizes)
        self._known: dict[str, Any] = {}

    def learn(self, values: Sequence[Any]) -> None:
        """Compute all of `values` at once, which is faster than one by one."""
        texts = list(
            dict.fromkeys(
                v.text for v in values if type(v) in (SymbolicInt, SymbolicFloat) and v.text not in self._known
            )
        )
        if texts:
            found = compile_numbers(self._count, (), texts)(*self._sizes)
            assert found is not None, "there is no guard"
            self._known.update(zip(texts, found, strict=True))

    def __call__(self, value: Any) -> Any:
        """`value`, a number, tuple, list or dataclass, with plain numbers."""
        if type(value) in (SymbolicInt, SymbolicFloat):
            return self._number(value)
        if type(value) in (tuple, list):
            return type(value)(map(self, value))
        if is_dataclass(value) and not isinstance(value, type):
            held = {f.name: getattr(value, f.name) for f in fields(value)}
            changed = {name: self(v) for name, v in held.items() if holds_symbols(v)}
            return replace(value, **changed) if changed else value
        return value

    def _number(self, value: Any) -> Any:
        self.learn([value])
        number = self._known[value.text]
        return int(number) if type(value) is SymbolicInt else float(number)


class Rehinted(Substituted):
    """A function that replaces symbolic numbers by the same expressions with other hints, in a new trace.

    Guards recorded there do not reach the original trace.
    """

    def __init__(self, trace: Trace, sizes: Sequence[int]) -> None:
        super().__init__(trace, sizes)
        self.trace = trace.moved(sizes)

    def _number(self, value: Any) -> Any:
        if type(value) is SymbolicInt:
            return self.trace.dim(value.poly)
        return SymbolicFloat(self.trace, value.text, super()._number(value), value.ratio)


def holds_symbols(value: Any) -> bool:
    """Whether a number, tuple, list or dataclass contains symbolic numbers."""
    if type(value) in (SymbolicInt, SymbolicFloat):
        return True
    if type(value) in (tuple, list):
        return any(map(holds_symbols, value))
    return (
        is_dataclass(value)
        and not isinstance(value, type)
        and any(holds_symbols(getattr(value, f.name)) for f in fields(value))
    )
