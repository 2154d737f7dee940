"""EmptyState: the values of a state before its first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import OpaliteError, OptionError
from ...model.model_inputs_outputs import NodeArg
from .kv_cache import kv_cache_model
from .match_state_outputs import StatePair

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
Axis = tuple[str, int]
"""An input and the index of an axis."""


class EmptyState:
    """Creates empty KV caches and zero recurrent states; a state with an initializer begins with that.

    sizes: of dimensions, by name. max_length: positions of caches that do not grow.
    """

    def __init__(
        self, session: InferenceSession, pairs: Sequence[StatePair], sizes: Mapping[str, int], max_length: int | None
    ) -> None:
        self._session, self.pairs, self._sizes, self._max_length = session, pairs, dict(sizes), max_length
        own = {a.name: a for a in session.get_overridable_initializers()}
        self._inputs: dict[str, NodeArg] = {**{a.name: a for a in session.get_inputs()}, **own}
        self._first = [p.past for p in pairs if p.past in own]
        self._computed: dict[Axis, int] = {}

    def values(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Empty caches and zero states by input name, with the batch and other sizes of `feeds`."""
        model = kv_cache_model(self._session) if self._first else None
        first = {} if model is None else {n: model.imported().imported.initializer(n) for n in self._first}
        sizes = dict(self._sizes)
        for name, value in feeds.items():
            info = self._inputs.get(name)
            for dim, size in zip(info.shape if info is not None else (), np.shape(value), strict=False):
                if isinstance(dim, str):
                    sizes[dim] = int(size)
        shapes = {p.past: self._shape(p, sizes, feeds) for p in self.pairs if p.past not in first}
        if any(None in shape for shape in shapes.values()):
            if not self._computed:
                tried = {n: self._zeros(n, [1 if d is None else d for d in shape]) for n, shape in shapes.items()}
                self._computed = infer_cache_sizes(self._session, feeds, tried, self.pairs)
            shapes = {n: [self._size(n, i, d) for i, d in enumerate(shape)] for n, shape in shapes.items()}
        return {**{n: self._zeros(n, shape) for n, shape in shapes.items()}, **first}

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


def infer_cache_sizes(
    session: InferenceSession, feeds: Mapping[str, Any], blanks: Mapping[str, Array], pairs: Sequence[StatePair]
) -> dict[Axis, int]:
    """Infer the sizes of the caches' last axes by shape inference; {} if they depend on a run.

    blanks: empty caches, with arbitrary sizes of the last axis. The shapes of the model's outputs for these give the
    sizes, because GroupQueryAttention, for example, ignores the last axis of an empty cache.
    """
    from ....importer import ImportRun  # few sessions need the importer
    from ....importer.walk.segments import GraphOutput

    model = kv_cache_model(session)
    if model is None:
        return {}
    imported = model.imported().imported
    try:
        run = ImportRun(imported.importer, imported.check_feeds({**feeds, **blanks}), _no_bodies)
        segment = run.segment
        if segment is None:
            return {}
        graph = segment.graph_at(run.sizes)
    except OpaliteError:
        return {}
    found: dict[Axis, int] = {}
    for p in pairs:
        export = segment.exports.get(p.present)
        if isinstance(export, GraphOutput):
            shape = graph.outputs[export.index].shape
            if len(shape) == blanks[p.past].ndim:
                found[p.past, len(shape) - 1] = shape[-1]
    return found


def _no_bodies(body: Any, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise OpaliteError("the host runs the body of a loop")
