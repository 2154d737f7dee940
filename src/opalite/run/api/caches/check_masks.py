"""Masks over the positions of a state, before a run: they cover what the state holds and what the run adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....errors import InputError

_MASKS = ("attention_mask", "decoder_attention_mask")
_TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds")


def check_mask(feeds: Mapping[str, Any], held: int) -> None:
    """Raise InputError for an attention mask shorter than the `held` positions and those of the run's tokens.

    Models would read other positions, or none, without a word.
    """
    mask = next((n for n in _MASKS if n in feeds), None)
    tokens = next((n for n in _TOKENS if n in feeds), None)
    if mask is None or tokens is None:
        return
    shape, added = np.shape(feeds[mask]), np.shape(feeds[tokens])
    if len(shape) == 2 and len(added) > 1 and shape[1] < held + added[1]:
        raise InputError(
            f"input '{mask}' {list(shape)} covers {shape[1]} positions; the state holds {held} and the run adds "
            f"{added[1]}: pass a mask of {held + added[1]}, 0 where a position is to be left out"
        )
