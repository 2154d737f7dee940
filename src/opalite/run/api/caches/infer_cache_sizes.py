"""infer_cache_sizes: open sizes of KV caches that follow from the model's weights, such as the head size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import OpaliteError
from ....importer import ImportRun
from ....importer.walk.segments import GraphOutput
from ...model.cached_model import CachedModel
from .kv_cache import kv_cache_model
from .match_state_outputs import StatePair

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
Axis = tuple[str, int]
"""An input and the index of an axis."""


def infer_cache_sizes(
    session: InferenceSession, feeds: Mapping[str, Any], blanks: Mapping[str, Array], pairs: Sequence[StatePair]
) -> dict[Axis, int]:
    """Infer the sizes of the caches' last axes by shape inference; {} if they depend on a run.

    blanks: empty caches, with arbitrary sizes of the last axis. The shapes of the model's outputs for these give the
    sizes, because GroupQueryAttention, for example, ignores the last axis of an empty cache.
    """
    model = kv_cache_model(session)
    if model is None:
        return {}
    imported = model.imported() if isinstance(model, CachedModel) else model
    try:
        run = ImportRun(imported.imported.importer, imported.check_feeds({**feeds, **blanks}), _no_bodies)
        segment = run.segment
        if segment is None:
            return {}
        graph = segment.graph_at(run.sizes)
    except OpaliteError:
        return {}
    found: dict[Axis, int] = {}
    for p in pairs:
        export = segment.exports.get(p.present)
        if isinstance(export, GraphOutput):
            shape = graph.outputs[export.index].shape
            if len(shape) == blanks[p.past].ndim:
                found[p.past, len(shape) - 1] = shape[-1]
    return found


def _no_bodies(body: Any, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise OpaliteError("the host runs the body of a loop")
