"""Rare operators of domain com.microsoft in exported models, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError, UnsupportedOpError

from ..oracles import MS, Values, assert_same, by_ort, imported

V = Values(5)
Array = np.ndarray[Any, Any]


def compare(
    op: str, arrays: list[Array | None], outputs: tuple[int, ...] = (0,), host: bool = False, **attrs: Any
) -> None:
    attrs.setdefault("domain", MS)
    assert_same(
        imported(op, arrays, outputs, may_use_host=host, **attrs), by_ort(op, arrays, outputs, **attrs), tol=2e-4
    )


# Linear algebra


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (2, 3, 1, 1), (5, 7, 7), (16, 16)])
def test_inverse(shape: tuple[int, ...]) -> None:
    compare("Inverse", [V.f(*shape) + 2 * np.eye(shape[-1], dtype=np.float32)])


def test_inverse_needs_pivots() -> None:
    compare("Inverse", [np.array([[0, 2, 0], [0, 0, -4], [8, 0, 0]], np.float32)])
    compare("Inverse", [V.f(3, 6, 6).astype(np.float64)])


def test_inverse_of_a_large_matrix_is_the_host_s() -> None:
    compare("Inverse", [V.f(20, 20) + 5 * np.eye(20, dtype=np.float32)], host=True)


def test_inverse_refuses_what_is_not_square() -> None:
    with pytest.raises(ShapeError, match="square"):
        imported("Inverse", [V.f(3, 4)], domain=MS)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cdist(metric: str, dtype: Any) -> None:
    compare("CDist", [V.f(7, 5).astype(dtype), V.f(3, 5).astype(dtype)], metric=metric)


def test_cdist_refuses_an_unknown_metric() -> None:
    with pytest.raises(UnsupportedOpError, match="cosine"):
        imported("CDist", [V.f(7, 5), V.f(3, 5)], domain=MS, metric="cosine")


# Images


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (6, 1)])
def test_crop_and_resize(mode: str, size: tuple[int, int]) -> None:
    rois = np.array([[0.1, 0.2, 0.8, 0.93], [0, 0, 1, 1], [0.9, 0.7, 0.3, 0.1], [-0.2, 0.1, 0.5, 1.3]], np.float32)
    arrays = [V.f(2, 3, 6, 7), rois, np.array([0, 1, 1, 0], np.int32), np.array(size, np.int32)]
    compare("CropAndResize", arrays, mode=mode, extrapolation_value=7.5, const=[3])


# Moving and making


@pytest.mark.parametrize("numbers", [(1.0, 5.0, 1.5), (5.0, -1.0, -2.0), (0.0, 4.0, None), (3.0, 3.0, 1.0)])
def test_range(numbers: tuple[float | None, ...]) -> None:
    arrays = [None if n is None else np.array(n, np.float32) for n in numbers]
    given = [a for a in arrays if a is not None]
    compare("Range", given, const=list(range(len(given))))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    value = [np.array([7], np.float32)] if mode == "constant" else []
    compare("Pad", [V.f(3, 4), np.array([1, 0, 0, 2]), *value], mode=mode, const=[1, 2][: 1 + len(value)])
    compare("Pad", [V.f(3, 4), np.array([[0, 1, 2, -1]])], mode="constant", const=[1])


@pytest.mark.parametrize(("dim", "size", "step"), [(-1, 4, 2), (1, 3, 1), (0, 2, 1), (1, 7, 3)])
def test_unfold_tensor(dim: int, size: int, step: int) -> None:
    compare("UnfoldTensor", [V.f(2, 7, 8)], dim=dim, size=size, step=step)


def test_unique_keeps_the_order_in_which_elements_come() -> None:
    compare("Unique", [np.array([3, 1, 3, 2, 1, 1], np.float32)], (0, 1, 2), host=True)


# Tokens


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_ngram_repeat_block(n: int) -> None:
    ids = np.random.default_rng(n).integers(0, 3, (4, 8))
    compare("NGramRepeatBlock", [ids, V.f(4, 6)], ngram_size=n)


def test_ngrams_of_many_tokens_are_compared_piece_by_piece() -> None:
    ids = np.tile(np.arange(9), (2, 3))
    compare("NGramRepeatBlock", [ids, V.f(2, 9)], ngram_size=9)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8", "f4", "f8", "text"])
def test_murmur_hash3(dtype: str, positive: int) -> None:
    if dtype == "text":
        x = np.array(["", "a", "ab", "abc", "abcd", "opalite", "größer", "naïve text"], object)
    else:
        x = np.arange(-3, 9).astype(dtype) * 3
    compare("MurmurHash3", [x], seed=42, positive=positive, host=dtype == "text")


@pytest.mark.parametrize("seed", range(12))
def test_bifurcation_detector(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source, tokens = rng.integers(0, 4, 9), rng.integers(0, 4, 5)
    start = int(rng.integers(0, 9))
    predicted = np.append(source[start:], 3)
    if seed % 3:
        predicted[int(rng.integers(0, predicted.size))] = 7
    arrays = [source, tokens, np.array([start]), *([predicted] if seed % 4 else [])]
    sizes = {"min_ngram_size": 1 + seed % 2, "max_ngram_size": 3}
    compare("BifurcationDetector", arrays, (0, 1), host=True, **sizes)


@pytest.mark.parametrize("shape", [(4, 5), (1, 6, 3), (1, 1), (1, 5)])
def test_dynamic_time_warping(shape: tuple[int, ...]) -> None:
    compare("DynamicTimeWarping", [np.abs(V.f(*shape))], host=True)
    compare("DynamicTimeWarping", [np.zeros(shape, np.float32)], host=True)  # all ways are equal


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("end", [None, 4])
def test_ngram_hash_mapping(past: bool, end: int | None) -> None:
    rng = np.random.default_rng(3)
    ids, multipliers = rng.integers(0, 50, (2, 7)), rng.integers(-(1 << 40), 1 << 40, 4)
    sizes, offsets = np.array([11, 13, 17, 19, 23, 29]), np.arange(6) * 100
    arrays = [ids, multipliers, sizes, rng.integers(0, 50, (2, 3)) if past else None, offsets]
    if end is not None:
        arrays.append(np.array(end))
    compare("NGramHashMapping", arrays, (0, 1), max_ngram_size=4, n_head_per_ngram=2, pad_id=1)
