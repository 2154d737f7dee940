"""Columns of a batch as inputs of a model, and its outputs as columns: one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..run.model.model_inputs_outputs import NodeArg

Array = np.ndarray[Any, Any]


def as_input(column: Any, port: NodeArg, name: str) -> Array:
    """A column as an array that the input `port` takes. Numbers are cast where their kind stays: float64 to float32.

    InputError where rows have different shapes.
    """
    array = np.asarray(column)
    wanted = None if port.dtype is None else port.dtype.np
    if array.dtype == object and array.size and not isinstance(array.flat[0], str | bytes):
        rows = [np.asarray(row) for row in array]
        shapes = sorted({row.shape for row in rows})
        if len(shapes) > 1:
            raise InputError(
                f"column '{name}' has rows of shapes {shapes[0]} and {shapes[1]}, and a batch has one shape: pad them, "
                "or use batch_size=1"
            )
        array = np.stack(rows)
    if wanted is not None and array.dtype != wanted and np.can_cast(array.dtype, wanted, "same_kind"):
        array = array.astype(wanted)
    return array


def fixed_rows(ports: Sequence[NodeArg]) -> int | None:
    """How many rows the model takes, None if any number. InputError where its inputs do not agree."""
    found = {port.name: port.shape[0] if port.shape else None for port in ports}
    counts = {n for n in found.values() if isinstance(n, int)}
    if len(counts) > 1:
        raise InputError(
            f"inputs have different numbers of rows, {found}: name those of one value in constants={{...}}"
        )
    return counts.pop() if counts else None


def padded(feeds: Mapping[str, Array], rows: int) -> dict[str, Array]:
    """`feeds` with their last row repeated until there are `rows`."""
    return {
        n: np.concatenate([a, np.repeat(a[-1:], rows - len(a), 0)]) if len(a) < rows else a for n, a in feeds.items()
    }


def check_rows(name: str, value: Any, rows: int) -> Array:
    """An output that has a row for each fed. InputError for any other."""
    array = np.asarray(value)
    if not array.ndim or len(array) != rows:
        raise InputError(
            f"output '{name}' has shape {array.shape} for {rows} rows, so that its rows are none of the batch's: name "
            "the outputs that have one row each in outputs=[...]"
        )
    return array
