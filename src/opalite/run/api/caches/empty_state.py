"""EmptyState: the values of a state before its first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import OptionError
from ...model.model_inputs_outputs import NodeArg
from .match_state_outputs import StatePair

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]


class EmptyState:
    """Creates empty KV caches and zero recurrent states.

    sizes: of dimensions, by name. max_length: positions of caches that do not grow.
    """

    def __init__(
        self, session: InferenceSession, pairs: Sequence[StatePair], sizes: Mapping[str, int], max_length: int | None
    ) -> None:
        self._session, self.pairs, self._sizes, self._max_length = session, pairs, dict(sizes), max_length
        self._inputs: dict[str, NodeArg] = {a.name: a for a in session.get_inputs()}
        self._computed: dict[tuple[str, int], int] = {}

    def values(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Empty caches and zero states by input name, with the batch and other sizes of `feeds`."""
        sizes = dict(self._sizes)
        for name, value in feeds.items():
            info = self._inputs.get(name)
            for dim, size in zip(info.shape if info is not None else (), np.shape(value), strict=False):
                if isinstance(dim, str):
                    sizes[dim] = int(size)
        shapes = {p.past: self._shape(p, sizes, feeds) for p in self.pairs}
        if any(None in shape for shape in shapes.values()):
            if not self._computed:
                tried = {n: self._zeros(n, [1 if d is None else d for d in shape]) for n, shape in shapes.items()}
                from .infer_cache_sizes import infer_cache_sizes  # imports the importer, which few sessions need

                self._computed = infer_cache_sizes(self._session, feeds, tried, self.pairs)
            shapes = {n: [self._size(n, i, d) for i, d in enumerate(shape)] for n, shape in shapes.items()}
        return {n: self._zeros(n, shape) for n, shape in shapes.items()}

    def _zeros(self, name: str, shape: Sequence[Any]) -> Array:
        dtype = self._inputs[name].dtype
        assert dtype is not None
        return np.zeros(shape, dtype.np)

    def _size(self, name: str, axis: int, known: int | None) -> int:
        """The size of an axis of a state. Raises OptionError if nothing determines it."""
        found = self._computed.get((name, axis)) if known is None else known
        if found is not None:
            return found
        info = self._inputs[name]
        raise OptionError(
            f"the size of axis {axis} ({info.shape[axis]}) of the state '{name}' {info.shape} follows from no input: "
            f"give it as session.state(sizes={{{info.shape[axis]!r}: ...}}), or max_length=... if it counts positions"
        )

    def _shape(self, pair: StatePair, sizes: Mapping[str, int], feeds: Mapping[str, Any]) -> list[int | None]:
        """The shape of a state before the first run; None for a last axis whose size no input determines."""
        info = self._inputs[pair.past]
        shape: list[int | None] = []
        for axis, dim in enumerate(info.shape):
            if isinstance(dim, int):
                shape.append(dim)
            elif axis == pair.time:
                shape.append(0)
            elif dim is not None and dim in sizes:
                shape.append(sizes[dim])
            elif axis == pair.batch:
                first = next((np.shape(v) for v in feeds.values() if np.ndim(v)), (1,))
                shape.append(int(first[0]))
            elif pair.time is not None and axis == len(info.shape) - 1:
                shape.append(None)
            else:
                shape.append(self._size(pair.past, axis, self._max_length))
        return shape
