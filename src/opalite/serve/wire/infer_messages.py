"""Requests, responses, metadata and statistics of the Open Inference Protocol and Triton's extensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .serve_errors import Invalid

Array = np.ndarray[Any, Any]
Parameter = bool | int | float | str
State = Literal["READY", "UNAVAILABLE", "LOADING", "UNLOADING"]
TRACE_HEADERS = ("traceparent", "tracestate")
"""The headers of the W3C trace context."""
DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
"""The durations of Statistics that both protocols have."""


@dataclass(frozen=True)
class Tensor:
    """An input or output. array: logical shape, C order, read-only for receivers; BYTES as an object array of bytes."""

    name: str
    datatype: str
    array: Array


@dataclass(frozen=True)
class RequestedOutput:
    """An output requested by the client."""

    name: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class InferRequest:
    """An inference request. version: '' for the newest served. outputs: () for all. trace: W3C trace headers."""

    model: str
    inputs: tuple[Tensor, ...]
    version: str = ""
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)

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
    """The outputs in the requested order. A stream's last response has the parameter `triton_final_response` true."""

    model: str
    version: str
    id: str
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class TensorMetadata:
    """An input or output of a model. shape: -1 for an open dimension, including the batch."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelMetadata:
    """Inputs and outputs of a model. platform: 'onnx_opalite', 'opal_opalite' or 'text_opalite', by its file."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True)
class ServerMetadata:
    """Name, version and protocol extensions of the server."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True)
class IndexEntry:
    """A version of a model in the repository."""

    name: str
    version: str
    state: State
    reason: str = ""


@dataclass(frozen=True)
class Duration:
    """A count and its total nanoseconds."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True)
class BatchStatistics:
    """Statistics of the runs with one batch size."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True)
class Statistics:
    """Triton's statistics of one model version since it was loaded.

    inference_count: elements of batches. execution_count: runs. The durations count requests. compute_input: copies to
    the worker. compute_infer: the session's run. compute_output: copies from the worker.
    """

    name: str
    version: str
    last_inference_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    cancel: Duration = Duration()
    batches: tuple[BatchStatistics, ...] = ()
