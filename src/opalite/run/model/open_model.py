"""An ONNX model behind a session: by a plan from the cache where that may be, else imported."""

from __future__ import annotations

import os

from ...ir.model_edits import ModelEdits
from .background.graph_compiler import Compiler
from .model_interface import Model


def open_onnx(model: str | os.PathLike[str] | bytes, compiler: Compiler, edits: ModelEdits | None = None) -> Model:
    """A model as `edits` change it, compiled by `compiler`."""
    from .plans.plan_cache import open_plans

    plans = open_plans(model, compiler, edits)
    if plans is not None:
        from .cached_model import CachedModel

        return CachedModel(model, compiler, plans, edits)
    compiler.prestart_for_generic()  # before these modules are read, which takes a while
    from .imported_model import ImportedModel
    from .onnx_model import OnnxModel

    return OnnxModel(ImportedModel(model, edits), compiler)
