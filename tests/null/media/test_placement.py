"""Fitting of pictures, and positions in them that come back."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from opalite.media.placement import fit_picture


def spotted(size: tuple[int, int], at: tuple[int, int]) -> Image.Image:
    """A black picture with a white square around a position."""
    picture = Image.new("RGB", size)
    picture.paste("white", (at[0] - 8, at[1] - 8, at[0] + 8, at[1] + 8))
    return picture


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
@pytest.mark.parametrize("size", [(64, 64), (128, 48), (301, 211)])
def test_a_position_in_the_input_is_found_in_the_picture(fit: str, size: tuple[int, int]) -> None:
    at = (150, 100)
    fitted, placement = fit_picture(spotted((311, 211), at), size, fit, 0.9 if fit == "crop" else 1.0)
    assert fitted.size == size
    bright = np.asarray(fitted.convert("L"), np.float64) * (np.asarray(fitted)[..., 0] > 150)
    rows, columns = np.indices(bright.shape)
    centre = np.array([(columns + 0.5) * bright, (rows + 0.5) * bright]).sum((1, 2)) / bright.sum()
    np.testing.assert_allclose(placement.to_picture(centre), at, atol=3)


def test_bars_are_cut_off_a_map() -> None:
    _, placement = fit_picture(Image.new("RGB", (40, 20)), (32, 32), "letterbox")
    layer = np.zeros((32, 32), np.uint8)
    layer[8:24] = 200
    back = placement.map_to_picture(Image.fromarray(layer), Image.Resampling.NEAREST)
    assert back.size == (40, 20)
    assert np.asarray(back).min() == 200


def test_a_picture_of_the_size_stays() -> None:
    picture = spotted((64, 32), (20, 20))
    fitted, placement = fit_picture(picture, (64, 32), "letterbox")
    assert fitted is picture
    assert placement.describe() == "64x32, as it is"
