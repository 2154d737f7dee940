"""Model: the interface of ONNX models and bundles, with their compiled executables, to a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...ir.device.device_info import DeviceInfo
from ..execute.run_trace import RunTrace
from .executable_cache import ExecutableCache
from .model_inputs_outputs import ModelMetadata, NodeArg
from .run_request import PLAIN, RunRequest


class Model(Protocol):
    """A model that runs on a device. Thread-safe: the request's lock serialises runs, not compilation (run_lock.py).

    overridable: initializers that are also inputs. opset: 0 if unknown.
    """

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    opset: int
    meta: ModelMetadata

    @property
    def draws(self) -> bool:
        """Whether the model may draw random numbers, so that runs cannot be compared; known after the first run."""

    @property
    def repeats(self) -> bool:
        """Whether the file and the inputs' types determine every plan; known after the first run."""

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays. Raises InputError for feeds that do not fit the inputs."""

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and the trace of the run.

        feeds: arrays or DeviceTensors, as `check_feeds` returns them. An output with a target is the target's
        DeviceTensor, or an array: in the first run of a shape, whose fp16 values may overflow.
        """

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """Example shapes by input, for a run on `device`."""

    @property
    def caches(self) -> list[ExecutableCache]:
        """The caches of compiled executables."""

    def reset(self) -> None:
        """Drop the compiled executables."""
