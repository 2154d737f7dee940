"""Lists of JSON to arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.serve.http.json_tensors import read_json, write_json
from opalite.serve.wire.datatypes import dtype_of
from opalite.serve.wire.serve_errors import Invalid, Unsupported


@pytest.mark.parametrize(
    "datatype, shape, data",
    [
        ("FP32", (2, 2), [1, 2.5, -3, float("inf")]),
        ("FP32", (2, 2), [[1, 2], [3, float("nan")]]),
        ("FP64", (1,), [1 << 60]),
        ("INT8", (3,), [-128, 0, 127]),
        ("UINT64", (2,), [0, (1 << 64) - 1]),
        ("INT64", (2,), [-(1 << 63), (1 << 63) - 1]),
        ("BOOL", (2, 1), [[True], [False]]),
        ("BYTES", (2, 2), [["a", "ß"], ["", "\0"]]),
        ("INT32", (0, 3), []),
        ("FP32", (), [4.0]),
        ("INT32", (1, 1, 2), [[[5, 6]]]),
    ],
)
def test_lists_become_arrays_and_lists_again(datatype: str, shape: tuple[int, ...], data: list[Any]) -> None:
    array = read_json("x", datatype, shape, data)
    assert (array.shape, array.dtype) == (shape, dtype_of(datatype))
    listed = write_json("x", datatype, array)
    assert read_json("x", datatype, shape, listed).tolist() == array.tolist() or np.isnan(array.astype(float)).any()


@pytest.mark.parametrize(
    "datatype, shape, data, words",
    [
        ("FP32", (1,), ["1.5"], "texts"),
        ("FP32", (1,), [True], "booleans"),
        ("FP32", (1,), [None], "null"),
        ("FP32", (1,), [1e40], "out of the range"),
        ("FP64", (1,), [10**400], "out of the range"),
        ("INT32", (1,), [1.0], "a fraction"),
        ("INT32", (1,), [1 << 31], "out of the range"),
        ("UINT8", (1,), [-1], "out of the range"),
        ("BOOL", (1,), [1], "whole numbers"),
        ("BYTES", (1,), [5], "whole numbers"),
        ("BYTES", (1,), ["\ud800"], "no Unicode"),
        ("FP32", (2,), [[1], [2]], "deeper"),
        ("FP32", (2, 2), [[1, 2], [3]], "unequal"),
        ("FP32", (2, 2), [[1, 2], 3], "unequal"),
        ("FP32", (4, 1), [[1, 2], [3, 4]], "nested as [2, 2]"),
        ("FP32", (3,), [1, 2], "2 elements"),
        ("FP32", (1,), {"0": 1}, "no list"),
        ("FP32", (2,), ["x" * 1000, 1], "texts"),
    ],
)
def test_other_lists_are_refused(datatype: str, shape: tuple[int, ...], data: Any, words: str) -> None:
    with pytest.raises(Invalid) as e:
        read_json("input 'x'", datatype, shape, data)
    assert words in str(e.value)
    assert "input 'x'" in str(e.value)


def test_some_types_have_no_json() -> None:
    with pytest.raises(Unsupported, match="binary"):
        read_json("x", "BF16", (1,), [1.0])
    with pytest.raises(Unsupported, match="binary"):
        write_json("x", "FP16", np.zeros(1, np.float16))
