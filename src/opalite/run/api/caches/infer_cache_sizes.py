"""Sizes of caches that a model leaves open, where they follow from its weights: the size of heads, for example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import OpaliteError
from ....importer.walk.segments import Output
from ...model.cached_model import CachedModel
from .kv_cache import kv_cache_model
from .match_state_outputs import StatePair

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
Place = tuple[str, int]
"""An axis of an input."""


def infer_cache_sizes(
    session: InferenceSession, feeds: Mapping[str, Any], blanks: Mapping[str, Array], pairs: Sequence[StatePair]
) -> dict[Place, int]:
    """Sizes of the last axes of caches, as the model computes those that come after the empty ones `blanks`, whose last
    axes may have any size; {} where that is not to be known without running it.

    GroupQueryAttention, for one, gives of an empty past what is new, however wide the past is.
    """
    model = kv_cache_model(session)
    if model is None:
        return {}
    imported = model.imported() if isinstance(model, CachedModel) else model
    try:
        run = imported.imported.importer.begin(imported.check_feeds({**feeds, **blanks}), _no_bodies)
        segment = run.segment
        if segment is None:
            return {}
        graph = segment.graph_at(run.sizes)
    except OpaliteError:
        return {}
    found: dict[Place, int] = {}
    for p in pairs:
        export = segment.exports.get(p.present)
        if isinstance(export, Output):
            shape = graph.outputs[export.index].shape
            if len(shape) == blanks[p.past].ndim:
                found[p.past, len(shape) - 1] = shape[-1]
    return found


def _no_bodies(body: Any, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise OpaliteError("the host runs the body of a loop")
