"""Model: what stands behind a session - an ONNX model or a bundle, with what was compiled of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...ir.device.device_info import DeviceInfo
from ..execute.run_trace import RunTrace
from .executable_cache import ExecutableCache
from .model_inputs_outputs import ModelMetadata, NodeArg
from .run_request import PLAIN, RunRequest


class Model(Protocol):
    """A model that can be run on a device. `opset` is 0 where it is not known. Thread-safe: programs run in turn, by
    the request's lock, which nobody holds while something is compiled (run_lock.py)."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    opset: int
    meta: ModelMetadata

    @property
    def draws(self) -> bool:
        """Whether it may draw random numbers, so that two runs cannot be compared; known after the first run."""

    @property
    def repeats(self) -> bool:
        """Whether the bytes of the file and the inputs' types decide everything; known after the first run."""

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays; InputError says what does not fit."""

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and what the run did, with how runs like it go where that is known.

        feeds: what `check_feeds` gave: arrays or DeviceTensors. Of the request's targets those outputs that can are the
        DeviceTensors that the targets gave; the first run of a shape gives arrays, for halves may overflow.
        """

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """A shape for every input, to try the model with on `device`."""

    @property
    def caches(self) -> list[ExecutableCache]:
        """The caches of compiled executables."""

    def reset(self) -> None:
        """Forget what was compiled."""
