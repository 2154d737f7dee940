"""Conversion of an emitted program with symbolic numbers to a Template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir.device.device_info import DeviceInfo
from ...ir.map_record import map_record
from ...ir.symbols import SymbolicFloat, SymbolicInt, Trace, hint_of
from ...kernels.launch import PerShapeTable, SymbolicTable
from ...kernels.lower_arguments import SymbolicNumber
from ..memory.arena_planner import plan_memory
from ..memory.liveness import Lifetime, arena_requests
from ..program import Program
from .program_template import Template
from .symbolic_numbers import SymbolicRecord, TableTerms, Term, TypedTerm


def make_template(
    trace: Trace,
    program: Program,
    lifetimes: Sequence[Lifetime],
    tables: Mapping[int, SymbolicTable | PerShapeTable],
    align: int,
    device: DeviceInfo,
    strategy: str,
) -> Template:
    """The Template of a program without slots, whose numbers may be symbolic in `trace`.

    tables: contents of slots that depend on sizes. strategy: of the arena.
    """
    at_hand = [replace(m, nbytes=hint_of(m.nbytes)) for m in lifetimes]
    offsets = plan_memory(arena_requests(at_hand), align, strategy)[0].offsets
    program.inputs, program.outputs, program.steps = lift(program.inputs), lift(program.outputs), lift(program.steps)
    program.reserved, program.placement = lift(program.reserved), lift(list(program.placement))
    return Template(
        tuple(trace.names),
        tuple(s.hint for s in trace.symbols),
        tuple(trace.guards),
        program,
        tuple(lift(list(lifetimes))),
        {number: _table_terms(t) for number, t in tables.items()},
        tuple(sorted(offsets, key=lambda i: (offsets[i], i))),
        align,
        device,
    )


def _table_terms(table: SymbolicTable | PerShapeTable) -> TableTerms | SymbolicRecord:
    if isinstance(table, SymbolicTable):
        return TableTerms(lift(table.numbers), table.dtype.name)
    return SymbolicRecord(table.maker, lift(table.args))


def lift(x: Any) -> Any:
    """`x`, a record or container, with terms for symbolic numbers."""
    return map_record(x, _term_of)


def _term_of(x: Any) -> Any:
    if type(x) in (SymbolicInt, SymbolicFloat):
        return Term(x.text)
    return TypedTerm(x.value.text, x.dtype.name) if isinstance(x, SymbolicNumber) else x
