"""Dynamic parameters: launch numbers of a template's program that change from run to run, in max-size buffers.

A decoder's KV caches grow with every run. Between two runs only a few numbers of its program change: scalar arguments,
grids, shapes of outputs. These numbers are found once; each run evaluates all of them in one compiled function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.map_record import map_record
from ...ir.symbols import compile_numbers
from ...lazy_dataclass import dataclass
from ..program import DownloadStep, LaunchStep, LocalArg, Program, ScalarArg, Storage
from .program_template import SizedGrids, Template
from .symbolic_numbers import Term, TypedTerm, filler, texts_in

Values = tuple[Any, ...]
_SYMBOL = re.compile(r"\bs(\d+)\b")


@dataclass(frozen=True)
class DynamicScalar:
    """Argument `arg` of step `step`: dynamic number `value`, as the NumPy type `dtype`."""

    step: int
    arg: int
    value: int
    dtype: str


class DynamicParameters:
    """The dynamic numbers of a program.

    program: for the largest `sizes`; smaller sizes use its memory. moves: numbers of the sizes that change. scalars:
    dynamic arguments. grids: by number of the step, a function of grid and work-group. items: likewise, before rounding
    to a group; the group is None if the device's defaults choose it. shapes: likewise of downloads. tables: by slot, a
    function of a constant's contents.
    """

    def __init__(self, template: Template, sizes: Sequence[int], moves: Iterable[int]) -> None:
        """ValueError if the template has no program for `sizes`, or if an offset or image depends on changing sizes."""
        self.sizes, self.moves = tuple(sizes), frozenset(moves)
        self._still = [(i, n) for i, n in enumerate(self.sizes) if i not in self.moves]
        program = template.at(self.sizes)
        if program is None:
            raise ValueError("a guard fails")
        self.program: Program = program
        self._sized = SizedGrids(template.device)
        self._texts: dict[str, int] = {}
        self._made_grids: dict[str, tuple[Callable[[Values], Any], Callable[[Values], Any]]] = {}
        self.scalars: list[DynamicScalar] = []
        self.grids: dict[int, Callable[[Values], Any]] = {}
        self.items: dict[int, Callable[[Values], Any]] = {}
        self.shapes: dict[int, Callable[[Values], tuple[int, ...]]] = {}
        for i, step in enumerate(template.program.steps):
            if isinstance(step, LaunchStep):
                self._find_launch(i, step)
            elif isinstance(step, DownloadStep) and self._moves(step.shape):
                self.shapes[i] = self._made(step.shape)
        self.tables = {n: self._made(t) for n, t in template.tables.items() if self._moves(t)}
        self._sizes_of_slots = self._bounded(template)
        guards = dict.fromkeys(g.text for g in template.guards if self._moves_text(g.text))
        self._numbers = compile_numbers(len(template.names), list(guards), list(self._texts))

    def at(self, sizes: Sequence[int]) -> Values | None:
        """The dynamic numbers at `sizes`; None if another program is needed."""
        for i, n in self._still:
            if sizes[i] != n:
                return None
        try:
            values = self._numbers(*sizes)
        except (ArithmeticError, ValueError):
            return None
        if values is None:
            return None
        for i, most in self._sizes_of_slots:
            if values[i] > most:
                return None
        return values

    def _find_launch(self, number: int, step: LaunchStep) -> None:
        for j, a in enumerate(step.args):
            if not self._moves(a):
                continue
            if isinstance(a, LocalArg) or not isinstance(a, ScalarArg):
                raise ValueError(f"{step.node}: local memory depends on changing sizes")
            term: Any = a.value
            assert isinstance(term, TypedTerm)
            self.scalars.append(DynamicScalar(number, j, self._number(term.text), term.dtype))
        if self._moves((step.grid, step.group)):
            text = repr((step.grid, step.group))  # equal grids share a function
            if text not in self._made_grids:
                made, sized = self._made((step.grid, step.group)), self._sized.at
                self._made_grids[text] = made, lambda values: sized(made(values))
            self.items[number], self.grids[number] = self._made_grids[text]

    def _bounded(self, template: Template) -> list[tuple[int, int]]:
        """(dynamic number, upper bound) of each slot size in bytes that changes."""
        found: dict[int, int] = {}
        for life, slot in zip(template.lifetimes, self.program.slots, strict=True):
            if life.within is not None and self._moves(life.within[1]):
                raise ValueError(f"the offset of {life.label} depends on changing sizes")
            if life.image is not None and self._moves(life.image):
                raise ValueError(f"the image {life.label} depends on changing sizes")
            if life.storage is not Storage.STATIC and self._moves(life.nbytes):
                (text,) = texts_in(life.nbytes)
                number = self._number(text)
                found[number] = min(found.get(number, slot.nbytes), slot.nbytes)
        return list(found.items())

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _moves_text(self, text: str) -> bool:
        return any(int(n) in self.moves for n in _SYMBOL.findall(text))

    def _moves(self, x: Any) -> bool:
        return any(map(self._moves_text, texts_in(x)))

    def _made(self, x: Any) -> Callable[[Values], Any]:
        """values -> `x` with numbers for its terms; constant terms are evaluated in advance."""
        texts = list(dict.fromkeys(t for t in texts_in(x) if not self._moves_text(t)))
        known = dict(zip(texts, compile_numbers(len(self.sizes), (), texts)(*self.sizes) or (), strict=True))
        partly = map_record(x, lambda leaf: known.get(leaf.text, leaf) if isinstance(leaf, Term) else leaf)
        return filler(partly, self._number)


def packed(dtype: str, value: Any) -> int:
    """A scalar argument as 64 bits, as megakernels read it."""
    return int.from_bytes(np.dtype(dtype).type(value).tobytes(), "little")
