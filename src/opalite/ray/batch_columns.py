"""Conversion of a batch's columns to inputs of a model, and of outputs to columns, with one row for each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..run.model.model_inputs_outputs import NodeArg

Array = np.ndarray[Any, Any]


def as_input(column: Any, port: NodeArg, name: str) -> Array:
    """A column as an array for the input `port`. Numbers are cast within their kind, such as float64 to float32.

    Raises InputError if rows have different shapes.
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
    """The number of rows of the model's inputs, None if it is open. Raises InputError if inputs disagree."""
    found = {port.name: port.shape[0] if port.shape else None for port in ports}
    counts = {n for n in found.values() if isinstance(n, int)}
    if len(counts) > 1:
        raise InputError(
            f"inputs have different numbers of rows, {found}: pass inputs without rows in constants={{...}}"
        )
    return counts.pop() if counts else None


def padded(feeds: Mapping[str, Array], rows: int) -> dict[str, Array]:
    """`feeds` padded to `rows` rows by repeating the last row."""
    return {
        n: np.concatenate([a, np.repeat(a[-1:], rows - len(a), 0)]) if len(a) < rows else a for n, a in feeds.items()
    }


def check_rows(name: str, value: Any, rows: int) -> Array:
    """Check that an output has `rows` rows. Raises InputError otherwise."""
    array = np.asarray(value)
    if not array.ndim or len(array) != rows:
        raise InputError(
            f"output '{name}' has shape {array.shape} for {rows} rows of the batch: name only outputs with a row for "
            "each row of the batch in outputs=[...]"
        )
    return array
