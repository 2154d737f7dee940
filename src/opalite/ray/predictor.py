"""Predictor: a session that maps batches, dicts of columns, to batches."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, OpaliteError
from ..run.api.session.inference_session import InferenceSession
from ..run.model.model_inputs_outputs import NodeArg
from .batch_columns import Array, as_input, check_rows, fixed_rows, padded
from .device_resources import assign_device
from .object_store import Source, fetch

_log = logging.getLogger("opalite.ray")


class Predictor:
    """Made once in each actor, where it opens a session and runs it before the first batch comes.

    model: a path, bytes, or what `opalite.ray.put` gave.
    inputs: {input of the model: column}; None takes the column of the same name for every input.
    outputs: {output: column} or names; None gives all by their names.
    keep: columns of the batch that are passed through.
    constants: inputs that are the same for all batches.
    warm_rows: rows of the batch of zeros that is run at once; 0 runs none. Models whose inputs are open in other
        dimensions run it only if `shapes` gives one row's shape by input.
    device: None takes the one that Ray's resource `opencl` has assigned to this actor (`opalite.ray.resources`), else
        the default device.
    options: those of InferenceSession.

    A model that takes a fixed number of rows runs as often as a batch needs; the last run is padded. Raises what
    InferenceSession raises, and InputError for columns that do not fit.
    """

    def __init__(
        self,
        model: Source | Any,
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | Sequence[str] | None = None,
        keep: Sequence[str] = (),
        constants: Mapping[str, Any] | None = None,
        warm_rows: int = 1,
        shapes: Mapping[str, Sequence[int]] | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        self._assignment = assign_device()  # held: it is this actor's as long as the predictor lives
        self.session = InferenceSession(fetch(model), device=device or self._assignment.device, **options)
        self._constants = dict(constants or {})
        ports = {p.name: p for p in self.session.get_inputs()}
        named = {n: n for n in ports if n not in self._constants} if inputs is None else dict(inputs)
        if unknown := (named.keys() | self._constants.keys()) - ports.keys():
            raise InputError(f"the model has no input {sorted(unknown)}; its inputs are {', '.join(ports)}")
        self._inputs: list[tuple[NodeArg, str]] = [(ports[name], column) for name, column in named.items()]
        every = [p.name for p in self.session.get_outputs()]
        given = every if outputs is None else outputs
        self._outputs = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
        if unknown := self._outputs.keys() - set(every):
            raise InputError(f"the model has no output {sorted(unknown)}; its outputs are {', '.join(every)}")
        self._keep = list(keep)
        if twice := set(self._keep) & set(self._outputs.values()):
            raise InputError(f"columns {sorted(twice)} are kept and are outputs, too; give an output another name")
        self._rows = fixed_rows([port for port, _ in self._inputs])
        if warm_rows:
            self._warm(self._rows or warm_rows, shapes or {})

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Columns for a batch of any number of rows: those kept, and the outputs."""
        missing = sorted({c for _, c in self._inputs if c not in batch} | {c for c in self._keep if c not in batch})
        if missing:
            raise InputError(
                f"the batch has no column {missing}; it has {', '.join(batch)}: map them by inputs={{...}}"
            )
        feeds = {port.name: as_input(batch[column], port, column) for port, column in self._inputs}
        counts = {len(array) for array in feeds.values()}
        if len(counts) > 1:
            raise InputError(f"columns of one batch have different lengths, {sorted(counts)}")
        found = {column: batch[column] for column in self._keep}
        return found | dict(zip(self._outputs.values(), self._run(feeds, counts.pop()), strict=True))

    def _run(self, feeds: Mapping[str, Array], count: int) -> list[Array]:
        """The outputs asked for."""
        step = self._rows or max(count, 1)
        parts = [self._run_part({n: a[i : i + step] for n, a in feeds.items()}) for i in range(0, count, step)]
        if not parts:  # an empty batch: what one row gives, without its row
            parts = [[a[:0] for a in self._run_part({n: _one_row(a) for n, a in feeds.items()})]]
        return [np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for arrays in zip(*parts, strict=True)]

    def _run_part(self, feeds: dict[str, Array]) -> list[Array]:
        count = len(next(iter(feeds.values())))
        rows = self._rows or count
        found = self.session.run(list(self._outputs), {**padded(feeds, rows), **self._constants})
        return [check_rows(n, v, rows)[:count] for n, v in zip(self._outputs, found, strict=True)]

    def _warm(self, rows: int, shapes: Mapping[str, Sequence[int]]) -> None:
        """Run on zeros, where all sizes are known, so that the first batch waits for no program."""
        feeds = {}
        for port, _ in self._inputs:
            shape = shapes.get(port.name, port.shape[1:])
            if port.dtype is None or not port.shape or not all(isinstance(n, int) for n in shape):
                return
            feeds[port.name] = np.zeros((rows, *(int(n) for n in shape if n is not None)), port.dtype.np)
        if not feeds:
            return
        try:
            self._run_part(feeds)
        except OpaliteError as e:  # a batch may fit where zeros do not; else it says the same
            _log.warning("the run before the first batch failed: %s", e)


def _one_row(empty: Array) -> Array:
    return np.zeros((1, *empty.shape[1:]), empty.dtype)
