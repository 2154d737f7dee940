"""Precision 'auto' settled at once: for what needs a fixed policy, such as bundles and verification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...ir.precision import PrecisionPolicy
from ..api.session import InferenceSession


def choose_precision(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    memory: str | None = None,
    tolerance: float | None = None,
    keeps: bool = True,
) -> tuple[PrecisionPolicy, list[str]]:
    """What a session with precision 'auto' decides on `feeds`, and the sentences that tell it.

    keeps: whether later sessions go by it; False for made-up inputs.
    """
    with InferenceSession(model, device=device, precision="auto", memory=memory, tolerance=tolerance) as session:
        session.keeps_precision = keeps
        session.run(None, feeds)
        session.settle()
        return session.precision_policy, session.explain_precision()
