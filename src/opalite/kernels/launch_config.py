"""LaunchConfig: the parameters and work-group that a kernel is launched with on one node."""

from __future__ import annotations

from dataclasses import dataclass

from .kernel import Params
from .launch import Grid


@dataclass(frozen=True)
class LaunchConfig:
    """Kernel parameters, the work-group for launches that leave it open, and a phrase on their origin."""

    params: Params
    group: Grid | None = None
    origin: str = ""
