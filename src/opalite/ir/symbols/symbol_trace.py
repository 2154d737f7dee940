"""Trace: the symbols of a model and the guards recorded about them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...lazy_dataclass import dataclass
from .compile_expressions import compile_numbers
from .expression_limits import LONGEST, MOST_BITS, MOST_FACTORS, is_too_long, symbols_in
from .maybe_symbolic import FUNCTIONS
from .polynomial import Bounds, Monomial, Poly
from .symbolic_int import SymbolicInt
from .value_bounds import KnownBounds, bounds_by_floordiv

SYMBOLS_OWN = "symbols are at least 2"
"""Origin of the guards that each symbol implies."""

TOO_LONG = f"what is computed of it would take more than {LONGEST} characters"
"""Origin of the guards that limit the length of expressions."""

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Guard:
    """A condition on sizes: true for the sizes of tracing, required of all others.

    where: the line of code that recorded it. fixes: whether it fixes a size to one value. node: the model's node
    imported at that time, or "".
    """

    text: str
    where: str
    fixes: bool = False
    node: str = ""


class Trace:
    """Symbols and the guards recorded about them. Not thread-safe."""

    def __init__(self) -> None:
        self.symbols: list[SymbolicInt] = []
        self.names: list[str] = []
        self.node = ""  # the model's node that is being imported; recorded in guards
        self._guards: dict[str, Guard] = {}
        self._texts: list[str] = []
        self._hints: list[int] = []
        self._symbols_of: list[frozenset[int]] = []  # by number of the atom, as _texts, _hints and _lengths
        self._lengths: list[int] = []
        self._plain: frozenset[int] = frozenset()  # symbols fixed because of an expression's length
        self._bounds = KnownBounds()
        self._bounds_of: dict[Poly, Bounds] = {}  # a cache, valid until the next guard
        self._atoms: dict[str, int] = {}
        self._dims: dict[Poly, SymbolicInt] = {}
        self.quotients: dict[Monomial, tuple[Poly, int]] = {}  # dividend and divisor by the quotient's atom
        self.recorded = 0
        self._checked = -1  # `recorded` when `_check` was compiled
        self._check: Callable[..., Any]

    def symbol(self, hint: int, name: str = "") -> int:
        """A new symbol with hint `hint`; 0 and 1, which broadcasting treats specially, stay plain.

        A symbol is at least 2, which is a guard. name: the model's name of the dimension, for messages.
        """
        if hint < 2:
            return hint
        text = f"s{len(self.symbols)}"
        number = self._atom(text, hint, (2, None))
        made = self.dim((((number,), 1),))
        assert isinstance(made, SymbolicInt)
        self.symbols.append(made)
        self.names.append(name or text)
        self._guards.setdefault(f"{text} >= 2", Guard(f"{text} >= 2", SYMBOLS_OWN))
        return made

    def moved(self, sizes: Sequence[int]) -> Trace:
        """A copy of this trace with other hints; the guards must hold for them."""
        numbers = compile_numbers(len(self.symbols), (), self._texts)(*sizes)
        assert numbers is not None, "there is no guard"
        made = Trace()
        made.names, made._texts, made._hints = [*self.names], [*self._texts], [int(n) for n in numbers]
        made._atoms, made._bounds = dict(self._atoms), self._bounds.copy()
        made._guards, made.quotients = dict(self._guards), dict(self.quotients)
        made._symbols_of, made._lengths, made._plain = [*self._symbols_of], [*self._lengths], self._plain
        made.recorded = self.recorded
        made.symbols = [made._dim(s.poly) for s in self.symbols]
        return made

    @property
    def guards(self) -> list[Guard]:
        """All guards, in the order of recording."""
        return list(self._guards.values())

    def guard(self, text: str, *, fixes: bool = False, where: str = "") -> None:
        """Record a condition, which holds for the hints. where: by default the line of code that asks."""
        if text not in self._guards:
            self._guards[text] = Guard(text, where or _caller(), fixes, self.node)
            self.recorded += 1

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether all guards hold for these values of the symbols."""
        if self.recorded != self._checked:
            self._checked = self.recorded
            fixing_first = sorted(self._guards.values(), key=lambda g: not g.fixes)
            names = ", ".join(s.text for s in self.symbols)
            text = " and ".join(f"({g.text})" for g in fixing_first) or "True"
            self._check = eval(f"lambda {names}: {text}", {"__builtins__": {}, **FUNCTIONS})
        try:
            return bool(self._check(*sizes))
        except (ArithmeticError, ValueError):
            return False

    def _atom(self, text: str, hint: int, bounds: Bounds) -> int:
        number = self._atoms.get(text)
        if number is None:
            number = self._atoms[text] = len(self._texts)
            self._texts.append(text)
            self._hints.append(hint)
            self._symbols_of.append(symbols_in(text))
            self._lengths.append(2 * LONGEST if is_too_long(text) else len(text) + 1)
            self._bounds.add_atom(bounds)
        return number

    def atom(self, text: str, hint: int, bounds: Bounds) -> int:
        """An opaque integer with bounds, as a SymbolicInt."""
        return self.dim((((self._atom(text, hint, bounds),), 1),))

    def dim(self, poly: Poly) -> int:
        """The SymbolicInt of a polynomial; a plain integer if it is constant or its sizes are fixed."""
        if self._plain:
            poly = self.reduced(poly)
        found = self._dims.get(poly)
        if found is not None:
            return found  # type: ignore[return-value]
        poly = self.shortened(poly)
        if not poly:
            return 0
        if len(poly) == 1 and not poly[0][0]:
            return poly[0][1]
        return self._dim(poly)  # type: ignore[return-value]

    def _dim(self, poly: Poly) -> SymbolicInt:
        found = self._dims.get(poly)
        if found is None:
            found = self._dims[poly] = SymbolicInt(self, poly, self.hint(poly))
        return found

    # Limits on the length of expressions

    def reduced(self, poly: Poly) -> Poly:
        """The polynomial with plain numbers in place of atoms that contain only fixed sizes."""
        if not self._plain:
            return poly
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in poly:
            kept = []
            for a in monomial:
                if self._symbols_of[a] <= self._plain:
                    coefficient *= self._hints[a]
                else:
                    kept.append(a)
            key = tuple(kept)
            terms[key] = terms.get(key, 0) + coefficient
        return tuple(sorted((m, c) for m, c in terms.items() if c))

    def shortened(self, poly: Poly, limit: int = LONGEST) -> Poly:
        """The polynomial within about `limit` characters: sizes in its longest atoms are fixed if it is longer."""
        while numbers := self._to_fix(poly, limit):
            self._fix(numbers)
            poly = self.reduced(poly)
        return poly

    def _to_fix(self, poly: Poly, limit: int) -> frozenset[int]:
        """The symbols in the longest atom of a too long polynomial; empty for others."""
        lengths = self._lengths
        total = 0
        for monomial, coefficient in poly:
            bits = coefficient.bit_length()
            total += 4 + bits // 3
            for a in monomial:
                total += lengths[a]
            if len(monomial) > MOST_FACTORS or bits > MOST_BITS:
                total += 2 * LONGEST
        if total <= limit:
            return frozenset()
        longest = max((a for m, _ in poly for a in m), key=lengths.__getitem__, default=None)
        return frozenset() if longest is None else self._symbols_of[longest]

    def _fix(self, numbers: frozenset[int]) -> None:
        for number in sorted(numbers - self._plain):
            symbol = self.symbols[number]
            self.guard(f"{symbol.text} == {symbol.hint}", fixes=True, where=TOO_LONG)
        self._plain |= numbers

    def fixed_for_length(self, text: str) -> bool:
        """Whether all sizes in the text of a float are fixed, because it or an earlier text is too long."""
        if not self._plain and not is_too_long(text):
            return False
        found = symbols_in(text)
        if is_too_long(text):
            self._fix(found)
        return found <= self._plain

    def hint(self, poly: Poly) -> int:
        """The value of a polynomial for the hints."""
        return sum(c * math.prod(self._hints[a] for a in m) for m, c in poly)

    def is_one_symbol(self, poly: Poly) -> bool:
        """Whether a polynomial is one symbol, to the first power, and constants."""
        atoms = [m for m, _ in poly if m]
        return len(atoms) == 1 and len(atoms[0]) == 1 and self._texts[atoms[0][0]] in {s.text for s in self.symbols}

    def bounds(self, poly: Poly) -> Bounds:
        """Lower and upper bound of a polynomial; None if unknown."""
        found = self._bounds_of.get(poly)
        if found is None:
            if len(poly) > 1 and any(m in self.quotients for m, _ in poly):
                found = bounds_by_floordiv(poly, self.quotients, self._bounds.of)
            else:
                found = self._bounds.of(poly)
            self._bounds_of[poly] = found
        return found

    def learn(self, poly: Poly, sign: str, text: str) -> None:
        """Update bounds from the guard `poly (sign) 0`; drop an earlier guard that follows from it."""
        follows = self._bounds.learn(poly, sign, text)
        self._bounds_of.clear()
        if follows is not None:
            self._guards.pop(follows, None)

    def text(self, poly: Poly) -> str:
        """A polynomial as an expression of Python."""
        terms = []
        for monomial, coefficient in sorted(poly, key=lambda term: not term[0]):  # the constant last
            factors = [self._texts[a] for a in monomial]
            if coefficient != 1 or not factors:
                factors.append(str(coefficient))
            terms.append("*".join(factors))
        return " + ".join(terms).replace("+ -", "- ")


def _caller() -> str:
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    if frame is None:
        return ""
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_lineno} {frame.f_code.co_name}"


# Sentences for people about a trace's guards


_SYMBOL = re.compile(r"\bs(\d+)\b")


def fixed_sizes(trace: Trace) -> list[str]:
    """A sentence for each fixed size: the size, and the node and line of code that fixed it."""
    sentences: dict[int, str] = {}
    for guard in trace.guards:
        found = symbols_in(guard.text)
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
        numbers = symbols_in(guard.text)
        if not (guard.fixes and len(numbers) == 1) and guard.where != SYMBOLS_OWN:
            text = _SYMBOL.sub(lambda m: f"[{trace.names[int(m[1])]}]", guard.text)
            found.append(f"{text}, asked {_by(guard)}")
    return found


def _by(guard: Guard) -> str:
    return f"by {guard.node} ({guard.where})" if guard.node else f"by {guard.where}"
