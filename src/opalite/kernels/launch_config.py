"""LaunchConfig: how a kernel is to be launched on one node, and where that knowledge comes from."""

from __future__ import annotations

from dataclasses import dataclass

from .kernel import Grid, Params


@dataclass(frozen=True)
class LaunchConfig:
    """Parameters of a kernel, the work-group of launches that leave it open, and a phrase on their origin."""

    params: Params
    group: Grid | None = None
    origin: str = ""
