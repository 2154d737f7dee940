"""Weights in kernels' own forms that somebody holds still, such as a device that works in the host's memory.

A decoder has a plan for the prompt and another for the tokens after it, with the same weights: the second finds what
the first has made, so that nothing is packed again, nor in memory twice meanwhile.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any

import numpy as np

from ..ir.stored import LARGE, StoredArray

Array = np.ndarray[Any, Any]

_lock = Lock()
_made: weakref.WeakValueDictionary[tuple[Hashable, str], Array] = weakref.WeakValueDictionary()


def made_of(source: Array | StoredArray | None, form: str, make: Callable[[], Array]) -> Array:
    """`source` in `form`: what is there, or what `make` gives, which is found as long as somebody holds it.

    Only large arrays of what lies in a model's file are: others have nothing that names their contents.
    """
    if not isinstance(source, StoredArray):
        return make()
    key = source.key, form
    with _lock:
        found = _made.get(key)
    if found is not None:
        return found
    found = make()
    if found.nbytes >= LARGE:
        with _lock:
            _made[key] = found
    return found
