"""check_feeds: an error sentence for every feed that does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.importer import Model, check_feeds, load_model

from ...helpers.onnx_text import parse


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(
        parse("""
            g (float[N, 3] image, int64 count, string[M] words, seq(float[2]) list, optional(float[1]) extra)
                => (float[N, 3] y, int64 n, string[M] w, seq(float[2]) l, optional(float[1]) e) {
                y = Neg(image)
                n = Identity(count)
                w = Identity(words)
                l = Identity(list)
                e = Identity(extra)
            }
        """)
    )


def good() -> dict[str, Any]:
    return {
        "list": [np.zeros(2, np.float32)],
        "image": np.zeros((2, 3), np.float32),
        "count": 7,
        "words": np.asarray(["a", "b"]),
    }


def test_good_feeds_come_back_in_order_as_arrays(model: Model) -> None:
    feeds = check_feeds(model, good())
    assert list(feeds) == ["image", "count", "words", "list", "extra"]
    assert feeds["count"].dtype == np.int64
    assert feeds["words"].dtype == object
    assert feeds["extra"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"imag": 1}, r"has no input 'imag'; did you mean 'image'\?"),
        ({"zzz": 1}, r"has no input 'zzz'; its inputs are 'image', 'count'"),
        ({"image": ...}, r"needs 'image', which the feeds lack; given: 'list', 'count', 'words'"),
        ({"image": np.zeros((2, 3))}, r"input 'image' is float32, got float64: pass x.astype\(np.float32\)"),
        ({"image": np.zeros(3, np.float32)}, r"has rank 2 \(float32\[N, 3\]\), got shape \(3,\) of rank 1"),
        ({"image": np.zeros((2, 4), np.float32)}, r"has size 3 along axis 1 \(float32\[N, 3\]\), got shape \(2, 4\)"),
        ({"image": None}, r"input 'image' is None; a tensor float32\[N, 3\] is expected"),
        ({"image": [[1, 2, 3], [4, 5]]}, r"input 'image' cannot be made an array of float32\[N, 3\]"),
        ({"image": np.zeros((2, 3), "M8[s]")}, r"input 'image' has dtype datetime64\[s\]"),
        ({"words": np.zeros(2, np.int64)}, r"input 'words' is string, got int64: pass an array of str"),
        ({"list": np.zeros(2, np.float32)}, r"input 'list' is a sequence: give a list of arrays, not ndarray"),
        ({"list": [np.zeros(2, np.int32)]}, r"input 'list' is float32, got int32"),
        ({"extra": np.zeros(1, np.int32)}, r"input 'extra' is float32, got int32"),
    ],
)
def test_feeds_that_do_not_fit(model: Model, changes: dict[str, Any], said: str) -> None:
    feeds = {k: v for k, v in {**good(), **changes}.items() if v is not ...}
    with pytest.raises(InputError, match=said):
        check_feeds(model, feeds)


def test_one_element_serves_for_a_scalar(model: Model) -> None:
    feeds = check_feeds(model, {**good(), "count": np.asarray([7], np.int64)})
    assert feeds["count"].shape == (1,)
