"""The example that finds faces: anchors, overlaps, and the squares that it keeps."""

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


def test_anchors_lie_in_the_cells_of_both_maps(example: Any) -> None:
    found = example.anchors()
    assert found.shape == (16 * 16 * 2 + 8 * 8 * 6, 2)
    assert found[0].tolist() == [1 / 32, 1 / 32]
    assert found[2].tolist() == [3 / 32, 1 / 32]
    assert found[-1].tolist() == [15 / 16, 15 / 16]


def test_of_overlapping_squares_the_surest_is_kept(example: Any) -> None:
    boxes, scores = np.zeros((1, 896, 16), np.float32), np.full((1, 896, 1), -9, np.float32)
    boxes[0, :, 2:4] = 32
    scores[0, [0, 2, 895], 0] = 3, 4, 2

    found = example.faces(lambda square: [boxes, scores], Image.new("RGB", (128, 96)))
    assert found == [(12, 4, 16), (120, 120, 16)]
    assert example.overlap((0, 0, 1), (1, 0, 1)) == pytest.approx(1 / 3)
    assert example.overlap((0, 0, 1), (2, 0, 1)) == 0
