"""The example that finds faces: the squares that it keeps."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

PATH = Path(__file__).parents[2] / "examples" / "faces" / "draw_faces.py"


@pytest.fixture(scope="module")
def example() -> Any:
    pytest.importorskip("tflite")
    spec = importlib.util.spec_from_file_location("draw_faces", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_of_overlapping_squares_the_surest_is_kept(example: Any) -> None:
    boxes, scores = np.zeros((1, 896, 16), np.float32), np.full((1, 896, 1), -9, np.float32)
    boxes[0, :, 2:4] = 32
    scores[0, [64, 66, 895], 0] = 3, 4, 2  # the bars above and below a picture of 128 x 96 are 16 pixels high

    class Detector:
        side = 128

        def __call__(self, square: Image.Image) -> list[Any]:
            assert square.size == (128, 128)
            return [boxes, scores]

    found = example.faces(Detector(), Image.new("RGB", (128, 96)))
    assert found == [(12, 4, 16), (120, 104, 16)]
