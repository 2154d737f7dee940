"""Requests, responses and what is told of models, as the Open Inference Protocol and Triton's extensions have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .serve_errors import Invalid

Array = np.ndarray[Any, Any]
Parameter = bool | int | float | str
State = Literal["READY", "UNAVAILABLE", "LOADING", "UNLOADING"]


@dataclass(frozen=True)
class Tensor:
    """array: of the logical shape, C order, read only by whoever did not make it; BYTES as an object array of bytes."""

    name: str
    datatype: str
    array: Array


@dataclass(frozen=True)
class RequestedOutput:
    """An output that the client asks for."""

    name: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class InferRequest:
    """version: '' for the newest that is served. outputs: () for all. trace: headers of the W3C trace context."""

    model: str
    inputs: tuple[Tensor, ...]
    version: str = ""
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)

    @property
    def priority(self) -> int:
        """1 is first; 0 is the model's default. Invalid for what is no number from 0 on."""
        return self._whole("priority")

    @property
    def timeout_s(self) -> float:
        """How long it may wait, from the parameter `timeout` in microseconds; 0 is the model's default."""
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
    """The outputs in the order asked for. A stream's last response has the parameter `triton_final_response` true."""

    model: str
    version: str
    id: str
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class TensorMetadata:
    """shape: -1 for an open dimension, the batch's included."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelMetadata:
    """platform: 'onnx_opalite', 'opal_opalite' or 'text_opalite', by what the model is made of."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True)
class ServerMetadata:
    """What the server calls itself, and the extensions that it speaks."""

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
    """How often, and nanoseconds in all."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True)
class BatchStatistics:
    """Runs on batches of one size."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True)
class Statistics:
    """Of one version, since it was loaded, as Triton's statistics extension counts.

    inference_count counts elements of batches, execution_count runs; the durations count requests. compute_input: into
    the worker's memory; compute_infer: the session's run; compute_output: back.
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
