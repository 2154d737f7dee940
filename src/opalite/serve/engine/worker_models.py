"""Models of a worker: TensorModel wraps a session; text_model.py has the one that generates text."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...run.api.session.inference_session import InferenceSession
from ..wire.datatypes import datatype_of_onnx, dtype_of
from ..wire.infer_messages import Array
from ..wire.serve_errors import Invalid
from .active_run import ActiveRun, RunResult
from .concurrency_probe import best_concurrency
from .embedding_model import EmbeddingModel
from .text_model import TextModel

if TYPE_CHECKING:
    from .worker_channel import Message

_WARM_RUNS, _WARM_S = 24, 0.4
_SETTLE_S = 15.0  # for background compilation in total; the rest continues while requests run
_TOLERANCE = 0.01  # of the largest value, between rows of a batch and single runs


def open_served(message: Message) -> Served:
    """Open and warm up the model of the message `open`."""
    if message["core_share"] is not None:
        _pin_to_core_share(*message["core_share"])  # before the driver starts its threads
    if message["kind"] == "text":
        return TextModel(message["path"], message["options"])
    if message["kind"] == "embedding":
        return EmbeddingModel(message["path"], message["options"])
    factory = message["factory"]
    if factory:
        sys.path[:] = message["import_path"]
        module, _, name = factory.partition(":")
        session = getattr(importlib.import_module(module), name)(message["path"], **message["options"])
    else:
        session = InferenceSession(message["path"], **message["options"])
    model = TensorModel(session)
    sizes = message["warm_sizes"] if message["batches"] or not model.is_on_host else [1]
    model.warm_up(sizes, message["batchable"], message["is_replacement"])
    if message["concurrency"]:
        model.concurrency = message["concurrency"]
    elif model.is_on_host and not message["batches"]:
        model.find_concurrency()
    return model


def _pin_to_core_share(number: int, count: int) -> None:
    """Pin the process to part `number` of `count` equal parts of its cores, if there are as many."""
    cores = _cores()
    if hasattr(os, "sched_setaffinity") and count <= len(cores):
        os.sched_setaffinity(0, cores[number * len(cores) // count : (number + 1) * len(cores) // count])


def _cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


class TensorModel:
    """Serves a session by get_inputs, get_outputs and run."""

    def __init__(self, session: Any) -> None:
        """session: an InferenceSession, or an object with these calls. Invalid for inputs without a datatype."""
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
        self._batchable = False
        self._settle_until = 0.0  # of the monotonic clock
        self._warm_feeds: dict[str, Array] = {}  # inputs of a successful run
        self.concurrency = 1

    @property
    def is_on_host(self) -> bool:
        return not isinstance(self._session, InferenceSession) or self._session.device.on_host

    def describe(self) -> dict[str, Any]:
        device = getattr(self._session, "device", None)
        return {
            "inputs": [[name, datatype, _sizes(shape)] for name, datatype, shape in self._inputs],
            "outputs": [[name, datatype, _sizes(shape)] for name, datatype, shape in self._outputs],
            "device": getattr(device, "id", "host"),
            "batchable": self._batchable,
            "on_host": self.is_on_host,
            "concurrency": self.concurrency,
            "max_batches": self.concurrency + 1,  # one is prefetched
        }

    def run(
        self,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        parameters: Mapping[str, Any],
        run: ActiveRun,
    ) -> RunResult:
        """Compute the outputs named in `outputs`, all for (). TerminatedError if the run is cancelled."""
        names = outputs or list(self._datatypes)
        is_own = isinstance(self._session, InferenceSession)
        found = self._session.run(names, feeds, run.options) if is_own else self._session.run(names, feeds)
        return [(name, self._datatypes[name], array) for name, array in zip(names, found, strict=True)], {}

    def stats(self) -> dict[str, Any]:
        is_own = isinstance(self._session, InferenceSession)
        return self._session.stats().to_raw() if is_own else {}

    def close(self) -> None:
        if isinstance(self._session, InferenceSession):
            self._session.close()

    def warm_up(self, sizes: Sequence[int], batchable: bool, is_replacement: bool) -> None:
        """Run zeros in batches of `sizes`, if only the batch is open, so that programs are built and linked.

        batchable: test whether rows of a batch are independent; with other open sizes, the name of the first dimension
            decides. is_replacement: run each size once.
        """
        if any(d is None for _, _, shape in self._inputs for d in shape[1:]):
            self._batchable = batchable and self._has_batch_name()
            return
        self._settle_until = time.monotonic() + _SETTLE_S
        open_first = all(shape and shape[0] is None for _, _, shape in self._inputs)
        for size in sizes if open_first else (1,):
            if not self._repeat(
                {n: np.zeros(_filled(s, size), dtype_of(d)) for n, d, s in self._inputs}, is_replacement
            ):
                return
        self._batchable = batchable and open_first and (is_replacement or self._rows_are_independent())

    def _repeat(self, feeds: Mapping[str, Array], is_replacement: bool) -> bool:
        """Run repeatedly; False if the model does not accept these inputs."""
        feeds = {n: np.full(a.shape, "", object) if a.dtype.hasobject else a for n, a in feeds.items()}
        try:
            self._session.run(None, feeds)
            if not is_replacement:
                self._settle()
                started = time.monotonic()
                for _ in range(_WARM_RUNS):
                    self._session.run(None, feeds)
                    if time.monotonic() - started > _WARM_S:
                        break
                self._settle()
        except Exception:
            return False
        self._warm_feeds = self._warm_feeds or feeds
        return True

    def find_concurrency(self) -> None:
        """Measure the best number of concurrent runs, on the inputs of the warm-up."""
        if self._warm_feeds:
            self.concurrency = best_concurrency(lambda: self._session.run(None, self._warm_feeds), len(_cores()))

    def _settle(self) -> None:
        if isinstance(self._session, InferenceSession):
            self._session.settle(max(0.0, self._settle_until - time.monotonic()))

    def _has_batch_name(self) -> bool:
        """Whether the first dimensions of all inputs and outputs have one name, and that name means a batch."""
        ports = [a for a in (*self._session.get_inputs(), *self._session.get_outputs()) if a.name in self._known]
        names = {str(a.shape[0]) if a.shape else "" for a in ports}
        return len(names) == 1 and ("batch" in (name := names.pop().lower()) or name in ("n", "b", "bs"))

    def _rows_are_independent(self) -> bool:
        """Whether a batch of two rows equals two runs."""
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


Served = TensorModel | TextModel | EmbeddingModel


def _ports(arguments: Sequence[Any]) -> list[tuple[str, str, list[int | None]]]:
    """Name, datatype and shape (None for open dimensions) of arguments with a datatype of the protocol."""
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
    # 0 and 1 are valid in every vocabulary and list of classes.
    return (rng.random(shape) if dtype.kind in "fV" else rng.integers(0, 2, shape)).astype(dtype)


def _is_like(rows: Array, others: Array) -> bool:
    if rows.shape != others.shape:
        return False
    if rows.dtype.kind in "OSUb":
        return bool(np.array_equal(rows, others))
    a, b = rows.astype(np.float64), others.astype(np.float64)
    return bool(np.all(np.abs(a - b) <= _TOLERANCE * max(float(np.abs(b).max(initial=0.0)), 1e-6)))
