"""EmbeddingModel: a worker's model that turns texts into vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import OptionError
from ...llm.pooling import shorten
from ..wire.datatypes import is_unicode
from ..wire.infer_messages import Array
from ..wire.serve_errors import Invalid

if TYPE_CHECKING:
    from .active_run import ActiveRun, RunResult

VECTORS, COUNTS = "embedding", "tokens"
"""Outputs: float32 vectors [texts, size], and numbers of tokens [texts]."""


def cut(vectors: Array, dimensions: int | None) -> Array:
    """The first `dimensions` numbers of each vector. Invalid if there are fewer."""
    try:
        return shorten(vectors, dimensions)
    except OptionError as e:
        failure = Invalid(str(e))
        failure.param = "dimensions"
        raise failure from e


class EmbeddingModel:
    """Serves an Embedder by the texts of `text_input`, or by `tokens` of the request's options."""

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        from ...llm.embedder import Embedder

        self._embedder = Embedder(path, **options)
        self._size = self._embedder.embed(["a", "a b c d"]).shape[1]

    def describe(self) -> dict[str, Any]:
        device = self._embedder.session.device
        return {
            "inputs": [["text_input", "BYTES", [-1]]],
            "outputs": [[VECTORS, "FP32", [-1, self._size]], [COUNTS, "INT64", [-1]]],
            "device": device.id,
            "batchable": True,
            "on_host": device.on_host,
            "concurrency": 1,
            "max_batches": 2,  # one is prefetched
        }

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], parameters: Mapping[str, Any], run: ActiveRun
    ) -> RunResult:
        """Vectors and numbers of tokens."""
        given = parameters.get("generation")
        texts = given[COUNTS] if isinstance(given, dict) else list(feeds["text_input"])
        if strange := next((n for n, t in enumerate(texts) if isinstance(t, str) and not is_unicode(t)), None):
            raise Invalid(f"element {strange} of input 'text_input' is no UTF-8 text")
        vectors, counts = self._embedder.embed_tokens(texts)
        found = {VECTORS: ("FP32", vectors), COUNTS: ("INT64", np.array(counts, np.int64))}
        return [(name, *found[name]) for name in outputs or found], {}

    def stats(self) -> dict[str, Any]:
        return self._embedder.session.stats().to_raw()

    def close(self) -> None:
        self._embedder.close()
