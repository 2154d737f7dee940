"""Constants that are packed by slices, so that a large one is in memory once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opalite.ir.constants import lazy_array
from opalite.ir.constants.lazy_array import LazyArray
from opalite.kernels.generic.generic_conv_matmul import _transposed
from opalite.kernels.matmul.gemm_cpu import to_panels
from opalite.kernels.weight_packing import pack_panels


def in_a_file(array: np.ndarray) -> LazyArray:
    """As in a model's file: no more than a slice is read at a time."""

    def load_bytes(first: int, count: int) -> np.ndarray:
        assert count <= max(lazy_array.SLICE, array.nbytes // len(array) * 6)  # or one panel
        return array.view(np.uint8).reshape(-1)[first : first + count].copy()

    return LazyArray(array.dtype, array.shape, lambda: pytest.fail("read whole"), load_bytes=load_bytes)


def panels(b: np.ndarray, width: int) -> np.ndarray:
    """[..., K, N] as [..., panels, K, width] with zeros, one element at a time."""
    *batch, k, n = b.shape
    out = np.zeros((*batch, -(-n // width), k, width), b.dtype)
    for column in range(n):
        out[..., column // width, :, column % width] = b[..., column]
    return out


@pytest.mark.parametrize("shape", [(37, 41), (1, 5), (64, 48), (3, 17, 29), (2, 3, 11, 13)], ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize("place", [in_a_file, lambda a: a], ids=["file", "memory"])
def test_panels(
    shape: tuple[int, ...], transposed: bool, place: Callable[[np.ndarray], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_array, "SLICE", 1000)
    b = np.random.default_rng(0).standard_normal(shape, np.float32)
    held = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if transposed else b
    found = to_panels(6, transposed, np.dtype(np.float32))(place(held))  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, panels(b, 6))


@pytest.mark.parametrize("shape", [(37, 41), (3, 17, 29)], ids=str)
@pytest.mark.parametrize("place", [in_a_file, lambda a: a], ids=["file", "memory"])
def test_transposed(
    shape: tuple[int, ...], place: Callable[[np.ndarray], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_array, "SLICE", 1000)
    matrix = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.testing.assert_array_equal(_transposed(place(matrix)), np.swapaxes(matrix, -1, -2))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(37, 41), (1, 5), (64, 48), (1, 17, 29), (8, 0)], ids=str)
@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "turned"])
@pytest.mark.parametrize("place", [in_a_file, lambda a: a], ids=["file", "memory"])
def test_panels_with_whole_slabs(
    shape: tuple[int, ...], turned: bool, place: Callable[[np.ndarray], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one matrix, perhaps in a stack of one, with zeros past its rows."""
    monkeypatch.setattr(lazy_array, "SLICE", 1000)
    b = np.random.default_rng(0).standard_normal(shape, np.float32)
    k, n = shape[-2:]
    want = np.zeros((-(-n // 6), -(-k // 4) * 4, 6), np.float16)
    want[:, :k] = panels(b.reshape(k, n), 6)
    held = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if turned else b
    given = place(held) if len(shape) == 2 and held.size else held
    found = pack_panels(given, want.shape, turned, np.float16)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, want)
