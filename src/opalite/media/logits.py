"""Softmax and sigmoid of the scores that a network gives."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def softmax(a: Array) -> Array:
    """Return the softmax along the last axis."""
    odds = np.exp(a - a.max(-1, keepdims=True))
    return np.asarray(odds / odds.sum(-1, keepdims=True))


def sigmoid(a: Array) -> Array:
    """Return the logistic sigmoid, without overflow."""
    return np.asarray(1 / (1 + np.exp(-np.clip(a, -80, 80))))
