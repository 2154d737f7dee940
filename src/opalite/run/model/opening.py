"""An ONNX model behind a session: by a plan from the cache where that may be, else imported."""

from __future__ import annotations

import os

from ...cl.runtime import Runtime
from ...ir.edits import ModelEdits
from .model import Source
from .options import CompileOptions


def open_onnx(
    model: str | os.PathLike[str] | bytes, rt: Runtime, options: CompileOptions, edits: ModelEdits | None = None
) -> Source:
    """The source of a model as `edits` change it, for the precision that `options` say."""
    from .plan_cache import open_plans

    plans = open_plans(model, rt, options, edits)
    if plans is not None:
        from .cached_model import CachedSource

        return CachedSource(model, plans, edits)
    from .onnx_model import OnnxSource

    return OnnxSource(model, edits)
