"""Pictures as a model's numbers: every option of the conversion, and what an input's shape and type ask for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from opalite.errors import InputError
from opalite.ir.dtype import DType
from opalite.media.input_spec import InputSpec
from opalite.media.picture_input import open_picture, open_size, picture_array, picture_shape
from opalite.media.placement import fit_picture
from opalite.media.preprocess import PRESETS, Preprocess

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
PICTURE = Image.fromarray(PIXELS)
OWN = Preprocess((0.1, 0.2, 0.3), (2.0, 3.0, 4.0), 0.5)
BGR = replace(OWN, colors="bgr")


def array_of(shape: tuple[int | None, ...], p: Preprocess, dtype: DType = DType.FLOAT32) -> np.ndarray[Any, Any]:
    found, spec = picture_shape("x", shape), InputSpec("x", dtype, shape, ())
    return picture_array(PICTURE, spec, found, open_size(found, PICTURE.size), p).array


@pytest.mark.parametrize("p", [OWN, BGR], ids=["rgb", "bgr"])
def test_numbers_of_a_picture(p: Preprocess) -> None:
    channels = PIXELS[..., ::-1] if p.colors == "bgr" else PIXELS
    wanted = ((channels * p.scale - np.array(p.mean)) / np.array(p.std)).astype(np.float32)
    np.testing.assert_allclose(array_of((1, 7, 5, 3), p)[0], wanted, atol=1e-5)
    np.testing.assert_allclose(array_of((1, 3, None, None), p)[0], wanted.transpose(2, 0, 1), atol=1e-5)
    np.testing.assert_allclose(array_of((3, 7, 5), p), wanted.transpose(2, 0, 1), atol=1e-5)
    np.testing.assert_allclose(array_of((2, 7, 5, 3), p), np.stack([wanted, wanted]), atol=1e-5)


def test_grey_pictures() -> None:
    grey = np.asarray(PICTURE.convert("L"), np.float32)
    np.testing.assert_array_equal(array_of((1, 1, 7, 5), PRESETS["raw"])[0, 0], grey)
    np.testing.assert_array_equal(array_of((7, 5), PRESETS["raw"]), grey)


@pytest.mark.parametrize(("dtype", "mean"), [(DType.UINT8, -20.3), (DType.INT8, 107.7)])
def test_integers_are_rounded_and_cut_off(dtype: DType, mean: float) -> None:
    found = array_of((1, 7, 5, 3), Preprocess((mean,), scale=1.0), dtype)
    ends = np.iinfo(dtype.np)
    assert found.dtype == dtype.np
    np.testing.assert_array_equal(found[0], np.clip(np.rint(PIXELS.astype(np.float64) - mean), ends.min, ends.max))


def test_numbers_for_channels_that_are_not_there() -> None:
    with pytest.raises(InputError, match="--mean has 2 numbers; input 'x' has 3 channels"):
        array_of((1, 3, 7, 5), Preprocess((0.1, 0.2)))
    with pytest.raises(InputError, match="--std has 3 numbers; input 'x' has 1 channels"):
        array_of((1, 1, 7, 5), Preprocess(std=(1.0, 2.0, 3.0)))
    with pytest.raises(InputError, match="--std must not be 0"):
        Preprocess(std=(1.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("shape", "size"), [((1, 3, 14, None), (10, 14)), ((1, 3, None, 10), (10, 14)), ((1, 3, None, None), (5, 7))]
)
def test_open_sizes_keep_proportions(shape: tuple[int | None, ...], size: tuple[int, int]) -> None:
    assert open_size(picture_shape("x", shape), PICTURE.size) == size
    assert array_of(shape, PRESETS["raw"]).shape == (1, 3, size[1], size[0])


def test_a_crop_keeps_its_share_of_the_middle() -> None:
    """Of a picture whose columns are their own numbers."""
    picture = Image.fromarray(np.broadcast_to(np.arange(200, dtype=np.uint8), (100, 200)).copy())
    for share in (1.0, 0.8):
        made, at = fit_picture(picture, (50, 50), "crop", share)
        columns = np.asarray(made, np.float64).mean(0)
        np.testing.assert_allclose(
            columns, np.linspace(100 - 50 * share, 100 + 50 * share, 51)[:-1] + share / 2, atol=2
        )
        np.testing.assert_allclose(
            at.to_picture(np.array([[0.0, 0.0], [50.0, 50.0]]))[:, 0], 100 + 50 * share * np.array((-1, 1))
        )


def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    path, exif = tmp_path / "a.png", Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter to the right
    PICTURE.save(path, exif=exif)
    np.testing.assert_array_equal(np.asarray(open_picture(path)[0]), np.rot90(PIXELS, -1))
