"""Shape tensors: additional inputs of a template's programs that follow from sizes alone.

The plain-data form of the importer's `Given`: positions, masks and lengths, computed on the host by the operators'
references, once for each choice of sizes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.constants.lazy_array import Array
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.map_record import map_record
from ...ir.symbols import Numbers, compile_numbers, is_symbolic
from ...lazy_dataclass import dataclass
from .symbolic_numbers import Term, filler

if TYPE_CHECKING:
    from ...ops.elementwise import Elementwise

_Make = Callable[[Any, dict[int, Array]], None]
"""Adds one or several arrays by number, from the numbers of all terms."""

_KEPT = 16  # choices of sizes in the cache


@dataclass(frozen=True)
class TypeTerms:
    """A tensor type whose shape may hold terms."""

    dtype: DType
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class ShapeTensorLeaf:
    """A tensor by its elements, in row-major order, some of them terms. number: of the value."""

    number: int
    type: TypeTerms
    elements: tuple[Any, ...]


@dataclass(frozen=True)
class ShapeTensorStep:
    """An operator, whose attributes may hold terms, on values by number; -1 for an absent input."""

    op: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    types: tuple[TypeTerms, ...]


@dataclass(eq=False)
class ShapeTensors:
    """Shape tensors and the steps that compute them.

    names: of the results, among the program's inputs and outputs; wanted: value numbers of the results. symbols: number
    of sizes. constants: by number.
    """

    symbols: int
    names: tuple[str, ...]
    wanted: tuple[int, ...]
    constants: tuple[tuple[int, Array], ...]
    leaves: tuple[ShapeTensorLeaf, ...]
    steps: tuple[ShapeTensorStep, ...]

    def at(self, sizes: Sequence[int]) -> Mapping[str, Array]:
        """The results by name; cached for recent sizes."""
        key = tuple(sizes)
        with self._lock:
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = self._compute(key)
                if len(self._found) > _KEPT:
                    self._found.popitem(last=False)
            else:
                self._found.move_to_end(key)
            return found

    def _compute(self, sizes: tuple[int, ...]) -> dict[str, Array]:
        numbers, makes = self._compiled
        values = numbers(*sizes)
        assert values is not None, "there is no guard"
        arrays = dict(self.constants)
        with np.errstate(all="ignore"):
            for make in makes:
                make(values, arrays)
        return {name: arrays[number] for name, number in zip(self.names, self.wanted, strict=True)}

    @cached_property
    def _compiled(self) -> tuple[Numbers, list[_Make]]:
        """(function that computes all terms, functions that make leaves and then steps' results)."""
        texts: dict[str, int] = {}

        def number(text: str) -> int:
            return texts.setdefault(text, len(texts))

        makes = [_leaf(x, number) for x in self.leaves]
        makes += [_step(x, number) for x in self.steps]
        return compile_numbers(self.symbols, (), list(texts)), makes

    @cached_property
    def _lock(self) -> Any:
        return Lock()

    @cached_property
    def _found(self) -> OrderedDict[tuple[int, ...], dict[str, Array]]:
        return OrderedDict()


def _leaf(leaf: ShapeTensorLeaf, number: Callable[[str], int]) -> _Make:
    shape_of, elements_of = filler(leaf.type.shape, number), filler(leaf.elements, number)
    place, dtype = leaf.number, leaf.type.dtype.np

    def make(values: Any, arrays: dict[int, Array]) -> None:
        arrays[place] = np.array(elements_of(values), dtype).reshape(shape_of(values))

    return make


def _step(step: ShapeTensorStep, number: Callable[[str], int]) -> _Make:
    """A step computed by the operator's reference."""
    from ...ops.elementwise import Elementwise  # lazy: importing operators is slow

    if isinstance(step.op, Elementwise):
        return _expression(step, step.op, number)
    op_of = filler(step.op, number)
    types = [(n, t.dtype.np, filler(t.shape, number)) for n, t in zip(step.outputs, step.types, strict=False)]

    def make(values: Any, arrays: dict[int, Array]) -> None:
        outs = op_of(values).reference([None if i < 0 else arrays[i] for i in step.inputs])
        for (place, dtype, shape_of), array in zip(types, outs, strict=False):
            arrays[place] = np.asarray(array).astype(dtype, copy=False).reshape(shape_of(values))

    return make


def _expression(step: ShapeTensorStep, op: Elementwise, number: Callable[[str], int]) -> _Make:
    """A step computed by a prepared expression, faster than the operator's reference."""
    from ...expr.expression import evaluator

    evaluated, inputs = evaluator(op.expr), [i for i in step.inputs if i >= 0]
    (place,), (t,) = step.outputs, step.types
    dtype, shape_of = t.dtype.np, filler(t.shape, number)

    def make(values: Any, arrays: dict[int, Array]) -> None:
        shape, given = shape_of(values), [arrays[i] for i in inputs]
        found = evaluated(given, shape)
        if found.shape != shape or any(found is a for a in given):
            found = np.array(np.broadcast_to(found, shape))
        arrays[place] = found.astype(dtype, copy=False)

    return make


def shape_tensors(
    symbols: int, leaves: Mapping[Value, Sequence[Any]], nodes: Sequence[Node], wanted: Mapping[str, Value]
) -> ShapeTensors:
    """The record of `nodes` that compute `wanted`, by name, from `leaves`, tensors by their elements."""
    numbers: dict[Value, int] = {}

    def number(v: Value | None) -> int:
        return -1 if v is None else numbers.setdefault(v, len(numbers))

    def typed(v: Value) -> TypeTerms:
        return TypeTerms(v.dtype, _terms(v.shape))

    held = tuple(ShapeTensorLeaf(number(v), typed(v), _terms(tuple(elements))) for v, elements in leaves.items())

    def step(n: Node) -> ShapeTensorStep:
        ends = tuple(map(number, n.inputs)), tuple(map(number, n.outputs))
        return ShapeTensorStep(_terms(n.op), *ends, tuple(map(typed, n.outputs)))

    steps = tuple(map(step, nodes))
    ends = tuple(number(v) for v in wanted.values())
    constants = tuple((i, v.data) for v, i in numbers.items() if v.data is not None)
    return ShapeTensors(symbols, tuple(wanted), ends, constants, held, steps)


def _terms(x: Any) -> Any:
    """`x` with terms for its symbolic numbers."""
    return map_record(x, lambda leaf: Term(leaf.text) if is_symbolic(leaf) else leaf)
