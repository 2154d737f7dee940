"""Predictor: a callable that runs a model on batches, which are dicts of columns."""

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
    """Opens a session and warms it up. Ray creates one Predictor in each actor.

    model: a path, bytes, or a result of `opalite.ray.put`.
    inputs: {input of the model: column}; None takes the column of the same name for every input.
    outputs: {output: column}, or names; None returns all outputs by their names.
    keep: columns of the batch to copy to the result.
    constants: inputs with the same value for all batches.
    warm_rows: rows of the warm-up run on zeros; 0 runs none. If inputs have further open dimensions, the warm-up also
        needs `shapes`, the shape of a row by input.
    device: None takes the device of Ray's resource `opencl` (`opalite.ray.resources`), else the default device.
    options: arguments of InferenceSession.

    A model with a fixed number of rows runs several times for a larger batch; the last run is padded. Raises the errors
    of InferenceSession, and InputError for columns that do not fit.
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
        self._assignment = assign_device()  # its lifetime is that of the predictor
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
        """Run the model on a batch of any number of rows; returns the kept columns and the outputs."""
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
        """The requested outputs for `count` rows."""
        step = self._rows or max(count, 1)
        parts = [self._run_part({n: a[i : i + step] for n, a in feeds.items()}) for i in range(0, count, step)]
        if not parts:  # an empty batch: the outputs of one row, without the row
            parts = [[a[:0] for a in self._run_part({n: _one_row(a) for n, a in feeds.items()})]]
        return [np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for arrays in zip(*parts, strict=True)]

    def _run_part(self, feeds: dict[str, Array]) -> list[Array]:
        count = len(next(iter(feeds.values())))
        rows = self._rows or count
        found = self.session.run(list(self._outputs), {**padded(feeds, rows), **self._constants})
        return [check_rows(n, v, rows)[:count] for n, v in zip(self._outputs, found, strict=True)]

    def _warm(self, rows: int, shapes: Mapping[str, Sequence[int]]) -> None:
        """Run on zeros if all sizes are known, so that the first batch does not wait for compilation."""
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
        except OpaliteError as e:  # zeros may be invalid inputs; other errors occur again in the first batch
            _log.warning("the run before the first batch failed: %s", e)


def _one_row(empty: Array) -> Array:
    return np.zeros((1, *empty.shape[1:]), empty.dtype)
