"""The range of pixels of a classifier whose weights do not say it, as its answers say.

A network for pixels of 0 to 255 that gets numbers of 0 to 1 answers from its biases: nearly the same for a picture as
for a plain grey one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from .logits import softmax
from .placement import GREY
from .preprocess import PRESETS, Preprocess

Array = np.ndarray[Any, Any]
Classify = Callable[[Image.Image, Preprocess], Array]
"""The scores of a picture converted so."""

_SAME, _DIFFERENT = 0.55, 0.9


def choose_by_answers(classify: Classify, picture: Image.Image, now: Preprocess) -> Preprocess:
    """Return 'caffe' in place of a guessed conversion with which the answers hardly depend on the picture."""
    caffe = replace(now, **{k: getattr(PRESETS["caffe"], k) for k in ("mean", "std", "scale", "colors")})
    if _difference(classify, picture, now) > _SAME or _difference(classify, picture, caffe) < _DIFFERENT:
        return now
    return replace(caffe, reason="with smaller numbers its answer is that for an empty picture")


def _difference(classify: Classify, picture: Image.Image, p: Preprocess) -> float:
    """Share of the answer that changes with the picture, 0 to 1."""
    blank = Image.new("RGB", picture.size, GREY)
    answers = [probabilities(classify(one, p)) for one in (picture, blank)]
    return float(np.abs(answers[0] - answers[1]).sum() / 2)


def probabilities(scores: Array) -> Array:
    """Return scores of classes as numbers that sum to 1: themselves if they do, else their softmax."""
    row = np.asarray(scores, np.float64).reshape(-1)
    if row.min() >= 0 and abs(row.sum() - 1) < 1e-2:
        return np.asarray(row)
    return softmax(row)
