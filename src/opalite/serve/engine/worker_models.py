"""What a worker serves: a session that takes and gives tensors, or a language model that writes text."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...run.api.session.inference_session import InferenceSession
from ..wire.datatypes import datatype_of_onnx, dtype_of
from ..wire.infer_messages import Array
from ..wire.serve_errors import Invalid
from .concurrency_probe import runs_at_once

if TYPE_CHECKING:
    from .worker_channel import Message

Written = tuple[list[tuple[str, str, Array]], dict[str, Any]]
"""Outputs with name and datatype, and parameters of the response."""
_WARM_RUNS, _WARM_S = 24, 0.4
_PATIENCE_S = 15.0  # for what is built behind, in all; it goes on behind requests
_OPTIONS: dict[str, type] = {
    "max_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "seed": int,
    "stop": str,
    "ignore_end": bool,
    "chat": bool,
    "system": str,
}
_DIFFERS = 0.01  # of the largest value: rows of a batch that are not those of single runs


class Cancelled(Exception):  # noqa: N818 - no error
    """The client wants no more of a text."""


class Served(Protocol):
    """A model that a worker has opened."""

    def describe(self) -> dict[str, Any]:
        """What the server is told of it: inputs, outputs, device."""

    def run(
        self,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        parameters: Mapping[str, Any],
        piece: Callable[[str], None],
    ) -> Written:
        """Outputs called `outputs`, all if there are none. piece: takes parts of a text as they are written."""

    def stats(self) -> dict[str, Any]:
        """What `session.stats()` says."""

    def close(self) -> None:
        """Release what it holds."""


def open_served(message: Message) -> Served:
    """Open and warm up what the server's first message says."""
    if message["share"] is not None:
        _take_cores(*message["share"])  # before a driver starts its threads
    if message["kind"] == "text":
        return TextModel(message["path"], message["options"])
    factory = message["factory"]
    if factory:
        sys.path[:] = message["import_path"]
        module, _, name = factory.partition(":")
        session = getattr(importlib.import_module(module), name)(message["path"], **message["options"])
    else:
        session = InferenceSession(message["path"], **message["options"])
    model = TensorModel(session)
    sizes = message["warm_sizes"] if message["batches"] or not model.is_on_host else [1]
    model.warm_up(sizes, message["joins"], message["quickly"])
    if message["at_once"]:
        model.at_once = message["at_once"]
    elif model.is_on_host and not message["batches"]:
        model.find_at_once()
    return model


def _take_cores(number: int, count: int) -> None:
    """Keep to one of `count` equal parts of the cores that this process may use, if there are as many."""
    cores = _cores()
    if hasattr(os, "sched_setaffinity") and count <= len(cores):
        os.sched_setaffinity(0, cores[number * len(cores) // count : (number + 1) * len(cores) // count])


def _cores() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


class TensorModel:
    """A session behind get_inputs, get_outputs and run."""

    def __init__(self, session: Any) -> None:
        """session: an InferenceSession, or what has these three calls. Invalid for inputs that the protocol lacks."""
        self._session = session
        self._inputs = _ports(session.get_inputs())
        lacking = [a for a in session.get_inputs() if a.name not in {name for name, _, _ in self._inputs}]
        if lacking:
            raise Invalid(f"input '{lacking[0].name}' is {lacking[0].type}, for which the protocol has no datatype")
        self._outputs = _ports(session.get_outputs())
        if not self._outputs:
            raise Invalid("the model has no output that the protocol has a datatype for")
        self._known = {name for name, _, _ in (*self._inputs, *self._outputs)}
        self._datatypes = {name: datatype for name, datatype, _ in self._outputs}
        self._joins = False
        self._until = 0.0  # of the monotonic clock: the end of patience
        self._tried: dict[str, Array] = {}  # inputs that it has run on
        self.at_once = 1

    @property
    def is_on_host(self) -> bool:
        """Whether it computes with the machine's cores."""
        return not isinstance(self._session, InferenceSession) or self._session.device.on_host

    def describe(self) -> dict[str, Any]:
        device = getattr(self._session, "device", None)
        return {
            "inputs": [[name, datatype, _sizes(shape)] for name, datatype, shape in self._inputs],
            "outputs": [[name, datatype, _sizes(shape)] for name, datatype, shape in self._outputs],
            "device": getattr(device, "id", "host"),
            "joins": self._joins,
            "on_host": self.is_on_host,
            "at_once": self.at_once,
            "holds": self.at_once + 1,  # one more, so that it need not wait for the next
        }

    def run(
        self,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        parameters: Mapping[str, Any],
        piece: Callable[[str], None],
    ) -> Written:
        names = outputs or list(self._datatypes)
        found = self._session.run(names, feeds)
        return [(name, self._datatypes[name], array) for name, array in zip(names, found, strict=True)], {}

    def stats(self) -> dict[str, Any]:
        is_own = isinstance(self._session, InferenceSession)
        return self._session.stats().to_raw() if is_own else {}

    def close(self) -> None:
        if isinstance(self._session, InferenceSession):
            self._session.close()

    def warm_up(self, sizes: Sequence[int], joins: bool, quickly: bool) -> None:
        """Run zeros in batches of `sizes`, if nothing but the batch is open, so that programs are built and joined.

        joins: whether rows of a batch are each like a run of their own, which is tried; where sizes are open, the name
            of the first dimension counts. quickly: run each size once.
        """
        if any(d is None for _, _, shape in self._inputs for d in shape[1:]):
            self._joins = joins and self._is_called_batch()
            return
        self._until = time.monotonic() + _PATIENCE_S
        open_first = all(shape and shape[0] is None for _, _, shape in self._inputs)
        for size in sizes if open_first else (1,):
            if not self._repeat({n: np.zeros(_filled(s, size), dtype_of(d)) for n, d, s in self._inputs}, quickly):
                return
        self._joins = joins and open_first and (quickly or self._rows_are_alike())

    def _repeat(self, feeds: Mapping[str, Array], quickly: bool) -> bool:
        """Whether it runs at all: zeros may be what a model does not take."""
        feeds = {n: np.full(a.shape, "", object) if a.dtype.hasobject else a for n, a in feeds.items()}
        try:
            self._session.run(None, feeds)
            if not quickly:
                self._settle()
            self._tried = self._tried or feeds
            if quickly:
                return True
            started = time.monotonic()
            for _ in range(_WARM_RUNS):
                self._session.run(None, feeds)
                if time.monotonic() - started > _WARM_S:
                    break
            self._settle()
        except Exception:
            return False
        return True

    def find_at_once(self) -> None:
        """Try how many runs at once are done fastest, on inputs that have been run before."""
        if self._tried:
            self.at_once = runs_at_once(lambda: self._session.run(None, self._tried), len(_cores()))

    def _settle(self) -> None:
        if isinstance(self._session, InferenceSession):
            self._session.settle(max(0.0, self._until - time.monotonic()))

    def _is_called_batch(self) -> bool:
        """Whether the first dimensions have one name, which says what they are, where it cannot be tried."""
        ports = [a for a in (*self._session.get_inputs(), *self._session.get_outputs()) if a.name in self._known]
        names = {str(a.shape[0]) if a.shape else "" for a in ports}
        return len(names) == 1 and ("batch" in (name := names.pop().lower()) or name in ("n", "b", "bs"))

    def _rows_are_alike(self) -> bool:
        """Whether a batch of two gives what two runs give."""
        rng = np.random.default_rng(0)
        feeds = {n: _drawn(rng, d, _filled(s, 2)) for n, d, s in self._inputs}
        try:
            both = self._session.run(None, feeds)
            each = [self._session.run(None, {n: a[i : i + 1] for n, a in feeds.items()}) for i in range(2)]
        except Exception:
            return False
        return all(
            _is_like(b, np.concatenate(e)) for b, *e in zip(both, *each, strict=True) if isinstance(b, np.ndarray)
        )


class TextModel:
    """A Generator behind `text_input` and `text_output`, one text at a time."""

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        from ...llm.generator import Generator

        self._generator = Generator(path, **options)
        self._generator.generate("a", max_tokens=2, ignore_end=True)

    def describe(self) -> dict[str, Any]:
        return {
            "inputs": [["text_input", "BYTES", [1]]],
            "outputs": [["text_output", "BYTES", [1]]],
            "device": self._generator.session.device.id,
            "joins": False,
            "on_host": self._generator.session.device.on_host,
            "at_once": 1,
            "holds": 1,
        }

    def run(
        self,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        parameters: Mapping[str, Any],
        piece: Callable[[str], None],
    ) -> Written:
        prompt = feeds["text_input"]
        if prompt.size != 1:
            raise Invalid(f"input 'text_input' is one text, got {prompt.size}; send a request for each")
        stream = self._generator.stream(prompt.flat[0], **self._options(parameters))
        try:
            for part in stream:
                piece(part)
        finally:
            stream.close()
        return [], {"reason": stream.reason, "tokens": len(stream.tokens)}

    def stats(self) -> dict[str, Any]:
        return self._generator.session.stats().to_raw()

    def close(self) -> None:
        self._generator.close()

    def _options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Those of Generator.stream. Invalid for a value of another type."""
        found = {}
        for name, kind in _OPTIONS.items():
            value = parameters.get(name)
            if value is None:
                continue
            fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise Invalid(f"parameter '{name}' is {kind.__name__}, got {value!r}")
            found[name] = kind(value)
        return found


def _ports(arguments: Sequence[Any]) -> list[tuple[str, str, list[int | None]]]:
    """Name, datatype and shape, None for an open dimension, of what the protocol can carry."""
    found = []
    for a in arguments:
        datatype = datatype_of_onnx(a.type)
        if datatype is not None:
            found.append((a.name, datatype, [d if isinstance(d, int) and d >= 0 else None for d in a.shape or ()]))
    return found


def _sizes(shape: Sequence[int | None]) -> list[int]:
    return [-1 if d is None else d for d in shape]


def _filled(shape: Sequence[int | None], size: int) -> list[int]:
    return [size if d is None else d for d in shape]


def _drawn(rng: np.random.Generator, datatype: str, shape: Sequence[int]) -> Array:
    if datatype == "BYTES":
        return np.array([chr(97 + n) for n in rng.integers(0, 26, shape).flat], object).reshape(tuple(shape))
    dtype = dtype_of(datatype)
    # Numbers that lists of words and classes have, whatever they mean.
    return (rng.random(shape) if dtype.kind in "fV" else rng.integers(0, 2, shape)).astype(dtype)


def _is_like(rows: Array, others: Array) -> bool:
    if rows.shape != others.shape:
        return False
    if rows.dtype.kind in "OSUb":
        return bool(np.array_equal(rows, others))
    a, b = rows.astype(np.float64), others.astype(np.float64)
    return bool(np.all(np.abs(a - b) <= _DIFFERS * max(float(np.abs(b).max(initial=0.0)), 1e-6)))
