"""Tables of kernels that depend on sizes, by name: the only functions that a file may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _resize_offsets(*args: Any) -> Array:
    from ...ops.resize_tables import offset_table

    return offset_table(*args)


def _resize_weights(*args: Any) -> Array:
    from ...ops.resize_tables import weight_table

    return weight_table(*args)


def _row_table(*args: Any) -> Array:
    from ...ops.permute_rows import row_table

    return row_table(*args)


_MAKERS: Mapping[str, Callable[..., Array]] = {
    "row_table": _row_table,
    "resize_offsets": _resize_offsets,
    "resize_weights": _resize_weights,
}


def make_table(maker: str, args: Sequence[Any]) -> Array:
    """The table of function `maker` for `args`, all plain. KeyError for an unknown name."""
    return _MAKERS[maker](*args)
