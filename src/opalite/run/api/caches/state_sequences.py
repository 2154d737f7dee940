"""Sequences of a state's batch: their values are copied within a state, and from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....errors import InputError, OptionError
from .match_state_outputs import StatePair

SPARE = -1
"""Place beside the sequences, for one that another overwrites before it is read."""


def check_indices(values: Mapping[str, Any], pairs: Sequence[StatePair], indices: Sequence[int]) -> list[int]:
    """The indices as a list. InputError if they are no sequences of the state."""
    picked = np.asarray(indices)
    if picked.ndim != 1 or picked.dtype.kind not in "iu" or not picked.size:
        raise InputError(f"indices are a list of numbers of sequences, got {indices!r}")
    for p in pairs:
        if p.past in values:
            size = values[p.past].shape[batch_axis(p, values[p.past])]
            if picked.min() < 0 or picked.max() >= size:
                raise InputError(f"indices of sequences go from 0 to {size - 1}, got {indices!r}")
    return [int(i) for i in picked]


def batch_axis(pair: StatePair, value: Any) -> int:
    """The axis of sequences. OptionError if there is none."""
    if pair.batch is None:
        raise OptionError(f"no axis of the state '{pair.past}' {value.shape} is the axis of sequences")
    return pair.batch


def moves_for(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Copies (from, to) after which sequence i is what `indices`[i] was, in an order that reads before it overwrites.

    A sequence that stays where it is takes none, whatever else is made of it. Only cycles pass through SPARE.
    """
    wanted = {to: source for to, source in enumerate(indices) if source != to}
    moves: list[tuple[int, int]] = []
    while wanted:
        to = next((t for t in wanted if t not in wanted.values()), None)
        if to is None:  # all that remain are cycles
            to = next(iter(wanted))
            moves.append((to, SPARE))
            wanted = {t: SPARE if s == to else s for t, s in wanted.items()}
        moves.append((wanted.pop(to), to))
    return moves


def reordered(values: dict[str, Any], pairs: Sequence[StatePair], indices: Sequence[int]) -> tuple[dict[str, Any], int]:
    """(Values of the sequences `indices`, the bytes copied in device memory); as many as there are stay in place."""
    made, nbytes = dict(values), 0
    moves = moves_for(indices)
    for p in pairs:
        value = values.get(p.past)
        if value is None:
            continue
        axis = batch_axis(p, value)
        if not isinstance(value, GrowableDeviceTensor):
            made[p.past] = np.take(value, indices, axis)
        elif len(indices) != value.shape[axis] or axis >= value.axis:
            made[p.past] = value.gather(indices, axis)
            nbytes += made[p.past].nbytes
        else:
            spare = value.empty_like(1, axis, 0, value.length) if any(to == SPARE for _, to in moves) else value
            for ends in moves:
                (source, i), (target, j) = ((spare, 0) if end == SPARE else (value, end) for end in ends)
                nbytes += target.copy_entry(source, axis, (i, j), 0, 0, value.length)
            value.rt.finish()
    return values if all(made[n] is v for n, v in values.items()) else made, nbytes


def with_length(values: dict[str, Any], pairs: Sequence[StatePair], length: int, capacity: int) -> dict[str, Any]:
    """`values` with growing caches cut or extended to `length` positions; memory for `capacity` if they do not fit."""
    growing = [p.past for p in pairs if p.time is not None]
    if any(values[n].capacity <= length for n in growing):
        values = values | {n: values[n].copy(capacity) for n in growing}
    for name in growing:
        values[name].length = length
    return values


def empty_values(
    values: Mapping[str, Any], pairs: Sequence[StatePair], count: int, length: int, capacity: int
) -> dict[str, Any]:
    """Zeros like `values`, of `count` sequences; growing caches with `length` positions and room for `capacity`."""
    made: dict[str, Any] = {}
    for p in pairs:
        value = values[p.past]
        axis = batch_axis(p, value)
        if isinstance(value, GrowableDeviceTensor):
            if axis >= value.axis:
                raise OptionError(f"the sequences of '{p.past}' {value.shape} are not in memory of their own")
            sizes = (value.length, value.capacity) if p.time is None else (length, capacity)
            made[p.past] = value.empty_like(count, axis, *sizes)
        elif p.time is not None:
            raise OptionError(f"the cache '{p.past}' is an array, which has no room for other sequences")
        else:
            made[p.past] = np.zeros([count if i == axis else d for i, d in enumerate(value.shape)], value.dtype)
    return made


def copy_sequence(
    values: dict[str, Any],
    source: Mapping[str, Any],
    pairs: Sequence[StatePair],
    entries: tuple[int, int],
    first: int,
    start: int,
    count: int,
) -> None:
    """Copy `count` positions of a sequence of `source` from `first` on, to `start` on in a sequence of `values`.

    entries: the sequence there, and here. Values that do not grow are copied as a whole, if the sequences differ.
    """
    for p in pairs:
        value, other = values[p.past], source[p.past]
        axis = batch_axis(p, value)
        is_same = value is other and entries[0] == entries[1]
        if isinstance(value, GrowableDeviceTensor):
            if p.time is not None:
                value.copy_entry(other, axis, entries, first, start, count)
            elif not is_same:
                value.copy_entry(other, axis, entries, 0, 0, value.length)
        elif not is_same:
            value = values[p.past] = value.copy()  # outputs of runs may be read-only
            value[(*(slice(None),) * axis, entries[1])] = other[(*(slice(None),) * axis, entries[0])]
    for value in values.values():
        if isinstance(value, GrowableDeviceTensor):
            value.rt.finish()
            break
