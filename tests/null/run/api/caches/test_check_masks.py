"""Masks that are too short for a state are refused before the run."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.run.api.caches.check_masks import check_mask


def test_a_mask_covers_what_is_held_and_what_is_added() -> None:
    tokens = np.zeros((2, 3), np.int64)
    for length in (9, 12):
        check_mask({"input_ids": tokens, "attention_mask": np.ones((2, length))}, 6)
    with pytest.raises(InputError, match=r"'attention_mask' \[2, 8\] covers 8 positions; the state holds 6 .* adds 3"):
        check_mask({"input_ids": tokens, "attention_mask": np.ones((2, 8))}, 6)
    with pytest.raises(InputError, match="pass a mask of 7"):
        check_mask({"inputs_embeds": np.zeros((1, 1, 8)), "attention_mask": np.ones((1, 1))}, 6)


def test_other_masks_are_the_models() -> None:
    check_mask({"input_ids": np.zeros((1, 3)), "attention_mask": np.ones((1, 1, 3, 3))}, 6)
    check_mask({"input_ids": np.zeros((1, 3))}, 6)
    check_mask({"attention_mask": np.ones((1, 3))}, 6)
