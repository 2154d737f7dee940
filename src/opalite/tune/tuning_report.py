"""What tuning found: layer by layer, and for a graph in all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .tuning_database import Verdict
from .tuning_levels import Level


class State(StrEnum):
    """What happened to a layer."""

    MEASURED = "measured"
    KNOWN = "known"  # an entry of this level or a higher one was there
    NOT_REACHED = "not reached"  # the model's budget ran out first
    FAILED = "failed"  # not even the untuned kernel could be measured


@dataclass(frozen=True)
class LayerTuning:
    """One distinct node of a model in one set of layouts. Times in seconds of one run of one such node."""

    names: tuple[str, ...]  # the model's nodes that it stands for
    op: str
    layout: str
    chosen: bool  # whether the untuned program uses these layouts; the others only compete for them
    before: str = ""
    after: str = ""
    default_s: float = 0.0
    seconds: float = 0.0
    trials: int = 0
    wrong: int = 0  # trials that computed something else
    refused: int = 0  # trials that did not build, or that the device did not run
    state: State = State.MEASURED
    complete: bool = True  # whether every trial of the level fitted into the budget
    note: str = ""

    @property
    def gain(self) -> float:
        """How many times as fast as untuned."""
        return self.default_s / self.seconds if self.seconds else 1.0


@dataclass
class GraphTuning:
    """Tuning of one graph: its layers, and what running it tuned and untuned in turn gave."""

    device: str
    level: Level
    layers: list[LayerTuning] = field(default_factory=list)
    verdict: Verdict | None = None
    note: str = ""

    @property
    def kernel_seconds(self) -> tuple[float, float]:
        """(untuned, tuned) seconds of all measured kernels of one run, each by itself."""
        own = [layer for layer in self.layers if layer.chosen]
        untuned = sum(layer.default_s * len(layer.names) for layer in own)
        return untuned, sum(layer.seconds * len(layer.names) for layer in own)

    def as_data(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**asdict(self), "level": str(self.level), "summary": self.summary()}

    def summary(self) -> str:
        """One sentence on the whole graph."""
        untuned, tuned = self.kernel_seconds
        parts = [f"kernels by themselves {1e3 * untuned:.3f} ms untuned, {1e3 * tuned:.3f} ms tuned"]
        if self.verdict is not None:
            v = self.verdict
            parts.append(str(v))
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)

    def __str__(self) -> str:
        lines = [f"{self.device}, level {self.level}"]
        for layer in self.layers:
            times = f"{1e6 * layer.default_s:9.1f} us -> {1e6 * layer.seconds:9.1f} us" if layer.seconds else layer.note
            lines.append(f"{len(layer.names):3} x {layer.names[0]:30} {layer.op:14} {times}  {layer.after}")
        return "\n".join([*lines, self.summary()])
