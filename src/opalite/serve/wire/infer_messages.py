"""Requests, responses, metadata and statistics of the Open Inference Protocol and Triton's extensions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from .memory_budget import Account
from .serve_errors import Invalid

Array = np.ndarray[Any, Any]
Parameter = bool | int | float | str
State = Literal["READY", "UNAVAILABLE", "LOADING", "UNLOADING"]
TRACE_HEADERS = ("traceparent", "tracestate")
"""The headers of the W3C trace context."""
_DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cancel")


@dataclass(frozen=True)
class Tensor:
    """An input or output. array: logical shape, C order, read-only for receivers; BYTES as an object array of bytes.

    place: parameters that tell a client where an output's data is, if it is not in the answer.
    """

    name: str
    datatype: str
    array: Array
    place: Mapping[str, Parameter] | None = None


@dataclass(frozen=True)
class RequestedOutput:
    """An output requested by the client."""

    name: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class InferRequest:
    """An inference request. version: '' for the newest served. outputs: () for all. trace: W3C trace headers.

    generation: options of a text (those of Generator.stream, `prompt` included) or of embeddings (`tokens`) in JSON's
    types, instead of inputs and parameters; None for other requests. held: counts the memory of copies and answers.
    """

    model: str
    inputs: tuple[Tensor, ...]
    version: str = ""
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)
    generation: Mapping[str, Any] | None = None
    held: Account | None = None

    def hold(self, nbytes: int) -> None:
        """Count memory that this request takes until it has been answered. MemoryFull."""
        if self.held is not None:
            self.held.add(nbytes)

    @property
    def text_options(self) -> Mapping[str, Any]:
        """The options of a text, in JSON's types, for the worker."""
        return self.parameters if self.generation is None else {"generation": dict(self.generation)}

    @property
    def priority(self) -> int:
        """The queue priority: 1 is first, 0 the model's default. Invalid for a negative or other value."""
        return self._whole("priority")

    @property
    def timeout_s(self) -> float:
        """The maximal wait in seconds, from the parameter `timeout` in microseconds; 0 is the model's default."""
        return self._whole("timeout") * 1e-6

    def _whole(self, name: str) -> int:
        value = self.parameters.get(name, 0)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
            raise Invalid(f"parameter '{name}' is a whole number from 0 on, got {value!r}")
        return value


@dataclass(frozen=True)
class InferResponse:
    """The outputs in the requested order. A stream's last response has the parameter `triton_final_response` true.

    logprobs: of the tokens of this part of a text, each (text, log-probability, likeliest [(text, log-probability)]).
    """

    model: str
    version: str
    id: str
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    logprobs: tuple[Any, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of the outputs that are in the answer."""
        return sum(tensor.array.nbytes for tensor in self.outputs if tensor.place is None)


@dataclass(frozen=True)
class TensorMetadata:
    """An input or output of a model. shape: -1 for an open dimension, including the batch."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelMetadata:
    """Inputs and outputs of a model. platform: 'onnx_opalite', 'text_opalite' etc., by its kind."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True)
class IndexEntry:
    """A version of a model in the repository."""

    name: str
    version: str
    state: State
    reason: str = ""


@dataclass
class Duration:
    """A count and its total nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Count an event that took `ns`."""
        self.count += 1
        self.ns += max(ns, 0)


@dataclass
class BatchStatistics:
    """Statistics of the runs with one batch size."""

    batch_size: int
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass
class Statistics:
    """Triton's statistics of one model version since it was loaded.

    inference_count: elements of batches. execution_count: runs. The durations count requests: those answered, failed,
    answered (time in the queue), and cancelled. compute_input: copies to the worker. compute_infer: the session's run.
    compute_output: copies from the worker. batches: by batch size, ascending.
    """

    name: str
    version: str
    last_inference_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    cancel: Duration = field(default_factory=Duration)
    batches: Sequence[BatchStatistics] = ()

    def add_batch(self, size: int, parts: Iterable[int]) -> None:
        """Count a batch of `size` rows. parts: nanoseconds for input copies, for the run and for output copies."""
        self.last_inference_ms = time.time_ns() // 1_000_000
        self.execution_count += 1
        self.inference_count += size
        found = next((b for b in self.batches if b.batch_size == size), None)
        if found is None:
            found = BatchStatistics(size)
            self.batches = sorted([*self.batches, found], key=lambda b: b.batch_size)
        _add_parts(found, parts)

    def add_success(self, total: int, queue: int, parts: Iterable[int]) -> None:
        """Count a request answered after `total`. parts: as of `add_batch`."""
        self.success.add(total)
        self.queue.add(queue)
        _add_parts(self, parts)

    def as_json(self) -> dict[str, Any]:
        """The JSON of Triton's statistics extension. Opalite has no response cache: its counts are 0."""
        durations = {name: asdict(getattr(self, name)) for name in _DURATIONS}
        return {
            "name": self.name,
            "version": self.version,
            "last_inference": self.last_inference_ms,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {**durations, "cache_hit": asdict(Duration()), "cache_miss": asdict(Duration())},
            "batch_stats": [asdict(batch) for batch in self.batches],
        }


def _add_parts(to: BatchStatistics | Statistics, parts: Iterable[int]) -> None:
    for total, ns in zip((to.compute_input, to.compute_infer, to.compute_output), parts, strict=True):
        total.add(ns)
