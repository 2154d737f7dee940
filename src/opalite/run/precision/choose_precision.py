"""choose_precision: decides precision 'auto' at once, for callers that need a fixed policy, such as bundles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ... import knobs
from ...cl.runtime import find_runtime
from ...ir.precision import PrecisionPolicy
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions, parse_tolerance
from .auto_model import AutoModel, describe_why_not_half, why_not_half
from .precision_choice import FP32


def choose_precision(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    memory: str | None = None,
    tolerance: float | None = None,
    stores_choice: bool = True,
) -> tuple[PrecisionPolicy, list[str]]:
    """The policy that a session with precision 'auto' chooses on `feeds`, and the sentences that describe it.

    stores_choice: whether later sessions use it; False for made-up inputs.
    """
    rt = find_runtime(device)
    if why_not_half(rt.info):
        return FP32, describe_why_not_half(rt.info)
    options = CompileOptions("auto", memory or str(knobs.get("OPALITE_MEMORY")), tolerance=parse_tolerance(tolerance))
    auto = AutoModel(model, Compiler(rt, options))
    auto.stores_choice = stores_choice
    try:
        auto.run(auto.check_feeds(feeds))
        auto.settle()
        return auto.policy, auto.describe()
    finally:
        auto.reset()
