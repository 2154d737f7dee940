"""Pooling of the vectors of tokens to one vector of a text, as in sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import OptionError

Array = np.ndarray[Any, Any]


def shorten(vectors: Array, dimensions: int | None) -> Array:
    """The first `dimensions` numbers of each vector; of length 1 if the whole vectors are."""
    if dimensions is None or dimensions == vectors.shape[-1]:
        return vectors
    if not 1 <= dimensions <= vectors.shape[-1]:
        raise OptionError(
            f"dimensions is from 1 to {vectors.shape[-1]}, the size of the model's vectors, got {dimensions}"
        )
    cut = vectors[:, :dimensions]
    is_unit = np.abs(np.linalg.norm(vectors, axis=1) - 1).max(initial=0.0) < 1e-3
    return unit(cut) if is_unit else cut


def unit(vectors: Array) -> Array:
    """The vectors with length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    made: Array = vectors / np.maximum(lengths, 1e-12).astype(np.float32)
    return made


def _mean(hidden: Array, weights: Array, power: float = 1.0) -> Array:
    """The weighted sum over tokens, divided by the weights' sum to a power."""
    wide = weights.astype(np.float32)
    made: Array = np.einsum("btd,bt->bd", hidden, wide) / np.maximum(wide.sum(1, keepdims=True), 1e-9) ** power
    return made


def _last(hidden: Array, mask: Array) -> Array:
    made: Array = hidden[np.arange(len(hidden)), mask.sum(1) - 1]
    return made


POOL: Mapping[str, Callable[[Array, Array], Array]] = {
    "cls_token": lambda hidden, mask: hidden[:, 0],
    "max_tokens": lambda hidden, mask: np.where(mask[:, :, None] > 0, hidden, -np.inf).max(1).astype(np.float32),
    "mean_tokens": _mean,
    "mean_sqrt_len_tokens": lambda hidden, mask: _mean(hidden, mask, 0.5),
    "weightedmean_tokens": lambda hidden, mask: _mean(hidden, mask * np.arange(1, mask.shape[1] + 1)),
    "lasttoken": _last,
}
"""Vectors [texts, size] of hidden states [texts, tokens, size] and a mask [texts, tokens], by kind of POOLING."""
