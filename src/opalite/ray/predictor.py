"""Predictor: a callable that runs a model on batches, which are dicts of columns; models in Ray's object store."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, InputTypeError, OpaliteError
from ..extras import need
from ..run.api.session.inference_session import InferenceSession
from ..run.model.model_inputs_outputs import NodeArg
from .device_resources import assign_device

Array = np.ndarray[Any, Any]
Source = str | os.PathLike[str] | bytes
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
            one = {n: np.zeros((1, *a.shape[1:]), a.dtype) for n, a in feeds.items()}
            parts = [[a[:0] for a in self._run_part(one)]]
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


def put(model: Source) -> Any:
    """Put a model's bytes into the object store; returns a ray.ObjectRef that a Predictor accepts on any node.

    model: an .onnx file without external data, a .tflite file, or a bundle of `opalite.compile`. Keep the reference as
    long as actors may start: Ray frees objects without references.
    """
    ray = need("ray", "opalite.ray.put", "ray")
    return ray.put(model if isinstance(model, bytes) else Path(model).read_bytes())


def fetch(model: Any) -> Source:
    """The bytes of a reference of `put`; returns a path or bytes unchanged. Raises InputTypeError for other types."""
    if isinstance(model, str | os.PathLike | bytes):
        return model
    if type(model).__name__ != "ObjectRef":
        raise InputTypeError(f"a model is a path, bytes, or a result of opalite.ray.put, got {type(model).__name__}")
    found: Source = need("ray", "a reference to a model", "ray").get(model)
    return found
