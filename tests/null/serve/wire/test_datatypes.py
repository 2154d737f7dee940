"""Datatypes of the protocol: names, and bytes there and back."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.serve.wire.datatypes import (
    DATATYPES,
    MOST_TEXTS,
    array_from_raw,
    datatype_of_onnx,
    dtype_of,
    raw_from_array,
    raw_size,
    triton_name,
)
from opalite.serve.wire.serve_errors import Invalid, TooLarge


@pytest.mark.parametrize("datatype", [d for d in DATATYPES if d != "BYTES"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_numbers_go_there_and_back_from_any_address(datatype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype_of(datatype))
    raw = bytes(raw_from_array(datatype, array))
    assert len(raw) == raw_size(datatype, array)
    found = array_from_raw(datatype, shape, memoryview(b"x" + raw)[1:], "input 'x'")
    assert found.dtype == array.dtype
    assert found.shape == shape
    assert np.array_equal(found, array)


def test_views_are_laid_out_in_order() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert np.array_equal(array_from_raw("FP32", (3, 2), raw_from_array("FP32", array), "x"), array)


def test_bytes_go_there_and_back() -> None:
    array = np.array([[b"", b"ab"], ["ä", b"\x00\xff"]], object)
    raw = raw_from_array("BYTES", array)
    assert raw[:4] == b"\x00\x00\x00\x00"
    assert raw.nbytes == raw_size("BYTES", array)
    assert array_from_raw("BYTES", (2, 2), raw, "x").tolist() == [[b"", b"ab"], ["ä".encode(), b"\x00\xff"]]


@pytest.mark.parametrize(
    "datatype, shape, raw, reason",
    [
        ("FP32", (2,), b"1234", "FP32 of shape \\[2\\] takes 8 bytes, but 4 came"),
        ("FP33", (2,), b"", "'FP33' is none of BOOL"),
        ("BOOL", (1,), b"\x02", "0 or 1, got 2"),
        ("FP32", (-1,), b"", "numbers from 0 on"),
        ("FP32", (True,), b"1234", "numbers from 0 on"),
        ("BYTES", (1,), b"\x02\x00", "take 4 bytes each and more, but 2"),
        ("BYTES", (1,), b"\x02\x00\x00\x00a", "has 2 bytes, but 1 are left"),
        ("BYTES", (2,), b"\x03\x00\x00\x00abc\x00", "the bytes end at element 1 of 2"),
        ("BYTES", (1,), b"\x00\x00\x00\x00a", "1 bytes are left"),
        ("BYTES", (1 << 50,), b"\x00\x00\x00\x00", "4 bytes each and more"),
        ("FP32", (0, 1 << 62, 1 << 62), b"", "larger than any memory"),
    ],
)
def test_what_does_not_fit_is_named(datatype: str, shape: tuple[int, ...], raw: bytes, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        array_from_raw(datatype, shape, raw, "input 'x'")


def test_names_of_onnx_and_triton() -> None:
    assert datatype_of_onnx("tensor(float)") == "FP32"
    assert datatype_of_onnx("seq(tensor(float))") is None
    assert datatype_of_onnx("tensor(complex64)") is None
    assert [triton_name(d) for d in ("BF16", "BYTES")] == ["TYPE_BF16", "TYPE_STRING"]


def test_texts_have_a_number() -> None:
    with pytest.raises(TooLarge, match="1048577 elements of BYTES, and 1048576 are allowed"):
        array_from_raw("BYTES", [MOST_TEXTS + 1], bytes(4 * (MOST_TEXTS + 1)), "input 't'")
