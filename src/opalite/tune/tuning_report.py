"""Reports of tuning: by layer, and for a whole graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .tuning_database import Verdict
from .tuning_levels import Level


class State(StrEnum):
    """The outcome for a layer."""

    MEASURED = "measured"
    KNOWN = "known"  # an entry of this level or a higher one existed
    NOT_REACHED = "not reached"  # the model's budget was exhausted
    FAILED = "failed"  # not even the untuned kernel could be measured


@dataclass(frozen=True)
class LayerTuning:
    """One distinct node of a model in one set of layouts; times in seconds per run of one such node."""

    names: tuple[str, ...]  # the model's nodes with this signature
    op: str
    layout: str
    chosen: bool  # whether the untuned program uses these layouts, or they are an alternative
    before: str = ""
    after: str = ""
    default_s: float = 0.0
    seconds: float = 0.0
    trials: int = 0
    wrong: int = 0  # trials with wrong output
    refused: int = 0  # trials that failed to build or to run
    state: State = State.MEASURED
    complete: bool = True  # whether the budget sufficed for every trial of the level
    note: str = ""

    @property
    def gain(self) -> float:
        """The untuned time over the tuned one."""
        return self.default_s / self.seconds if self.seconds else 1.0


@dataclass
class GraphTuning:
    """Tuning of one graph: its layers, and the comparison of its tuned and untuned programs."""

    device: str
    level: Level
    layers: list[LayerTuning] = field(default_factory=list)
    verdict: Verdict | None = None
    note: str = ""

    @property
    def kernel_seconds(self) -> tuple[float, float]:
        """(untuned, tuned) sum of the seconds of all measured kernels of one run."""
        own = [layer for layer in self.layers if layer.chosen]
        untuned = sum(layer.default_s * len(layer.names) for layer in own)
        return untuned, sum(layer.seconds * len(layer.names) for layer in own)

    def as_data(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
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
