"""Source: what stands behind a session - an ONNX model or a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...ir.device import DeviceInfo
from ...plan.program import Program
from ..execute.exchange import Target
from ..execute.trace import Timing
from .compiler import Compiler
from .ports import ModelMetadata, NodeArg


@dataclass(frozen=True)
class Whole:
    """All of a run as one program.

    program: its inputs are the model's own. finish: what the host makes of the arrays that the program gives to have
    the model's outputs in order; None where those are they.
    """

    program: Program
    finish: Callable[[list[Any]], list[Any]] | None = None


class Source(Protocol):
    """A model that can be run through a compiler. `opset` is 0 where it is not known."""

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

    def run(
        self,
        compiler: Compiler,
        feeds: Mapping[str, Any],
        timing: Timing,
        targets: Mapping[str, Target] | None = None,
    ) -> list[Any]:
        """The model's outputs in order; adds to `timing` where the time went.

        feeds: arrays or DeviceTensors. targets: outputs that should stay on the device; those that can are the
        DeviceTensors that the targets gave. The first run of a shape gives arrays, for halves may overflow.
        """

    def whole(self) -> Whole | None:
        """What the last run was; None where it was more than one program, or something came before it."""

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """A shape for every input, to try the model with on `device`."""

    def reset(self) -> None:
        """Forget what was compiled."""
