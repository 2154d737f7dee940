"""Suppression of boxes, post-processing of detections and data-dependent sizes, compared with LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from opalite.errors import ModelError, ModelFormatError, UnsupportedOpError
from opalite.importer import load_model

from ....helpers.tflite_files import one_op
from ..oracles import Values
from .oracles import check_op, ran

F = np.float32


def boxes(count: int) -> np.ndarray[Any, Any]:
    """Corners of boxes, many of which overlap."""
    corners = np.abs(Values(5).f(count, 2)) * 0.3
    return np.concatenate([corners, corners + 0.5 + np.abs(Values(6).f(count, 2)) * 0.2], 1).astype(F)


SCORES = np.linspace(0.9, 0.05, 12).astype(F)[np.random.default_rng(1).permutation(12)]


@pytest.mark.parametrize("most", [4, 20])
def test_non_max_suppression(most: int) -> None:
    constants = [np.int32(most), F(0.4), F(0.2)]
    const = (2, 3, 4)
    outs = [(np.int32, (most,)), (np.int32, ())]
    found = check_op("NON_MAX_SUPPRESSION_V4", [boxes(12), SCORES, *constants], outs, const=const)
    assert 1 < found[1] < 12
    outs = [(np.int32, (most,)), (F, (most,)), (np.int32, ())]
    check_op("NON_MAX_SUPPRESSION_V5", [boxes(12), SCORES, *constants, F(0)], outs, const=(*const, 5))
    model, _ = one_op("NON_MAX_SUPPRESSION_V5", [boxes(12), SCORES, *constants, F(0.5)], outs, const=(*const, 5))
    with pytest.raises(UnsupportedOpError, match="lowers scores softly"):
        ran(model, [boxes(12), SCORES])


OPTIONS = {
    "max_detections": 5,
    "nms_iou_threshold": 0.4,
    "nms_score_threshold": 0.3,
    "num_classes": 3,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}


@pytest.mark.parametrize(
    ("more", "columns"),
    [
        ({"max_classes_per_detection": 1}, 4),
        ({"max_classes_per_detection": 2}, 3),
        ({"max_classes_per_detection": 1, "use_regular_nms": True, "detections_per_class": 2}, 4),
    ],
)
def test_detection_postprocess(more: dict[str, Any], columns: int) -> None:
    rng, n = Values(7), 12
    encodings, anchors = rng.f(1, n, 4), np.abs(rng.f(n, 4)) + F(0.1)
    scores = np.random.default_rng(2).permutation(np.linspace(0, 1, n * columns)).astype(F).reshape(1, n, columns)
    rows = 5 * more["max_classes_per_detection"]
    outs = [(F, (1, rows, 4)), (F, (1, rows)), (F, (1, rows)), (F, (1,))]
    raw = bytes(flexbuffers.Dumps({**OPTIONS, **more}))
    model, fed = one_op("TFLite_Detection_PostProcess", [encodings, scores, anchors], outs, const=(2,), custom=raw)
    found = ran(model, fed)
    count = int(found[3][0]) * more["max_classes_per_detection"]
    assert 0 < count <= rows
    from ....helpers.tflite_files import litert

    for own, other in zip(found[:3], litert(model, fed), strict=False):  # what follows is not written there
        np.testing.assert_allclose(own[:, :count], other[:, :count], rtol=1e-5, atol=1e-5)
        assert not own[:, count:].any()
    assert found[3] == litert(model, fed)[3]


def test_damaged_options_of_a_custom_operator() -> None:
    outs = [(F, (1, 5, 4)), (F, (1, 5)), (F, (1, 5)), (F, (1,))]
    feeds = [np.zeros((1, 2, 4), F), np.zeros((1, 2, 3), F), np.zeros((2, 4), F)]
    for raw in (b"\xff\xfe\xfd", b"", bytes(flexbuffers.Dumps([1, 2]))):
        model, fed = one_op("TFLite_Detection_PostProcess", feeds, outs, const=(2,), custom=raw)
        load_model(model)
        with pytest.raises((ModelFormatError, ModelError), match="TFLite_Detection_PostProcess"):
            ran(model, fed)


def test_places_of_what_holds_and_of_what_differs() -> None:
    flags = np.array([[True, False, True], [False, True, True]])
    check_op("WHERE", [flags], [(np.int64, (4, 2))])
    numbers = np.array([5, 3, 5, 9, 3], np.int32)
    check_op("UNIQUE", [numbers], [(np.int32, (3,)), (np.int32, (5,))], "UniqueOptions", idxOutType=2)
