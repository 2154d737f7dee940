"""Strings and complex numbers are moved by canonical operators, at constant and at computed positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import InputError, ShapeError, UnsupportedOpError

from ..oracles import assert_same, by_ort, imported

Array = np.ndarray[Any, Any]
NUMBERS = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


PLACES = i64(1, 0, 1).reshape(1, 3)
KEPT = np.array([True, False, True])

# Operator, inputs before and after x (numbers in the place of more elements), attributes, opset.
MOVES: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("Gather", ["x", i64(1, -1)], {"axis": 1}, 18),
    ("Gather", ["flat", np.array(2)], {}, 18),
    ("GatherElements", ["x", PLACES], {"axis": 0}, 18),
    ("GatherND", ["x", np.array([[0, 1], [1, -1]])], {}, 18),
    ("Concat", ["x", "x", "row"], {"axis": 0}, 18),
    ("Reshape", ["x", i64(3, -1)], {}, 18),
    ("Flatten", ["x"], {"axis": 0}, 18),
    ("Transpose", ["x"], {}, 18),
    ("Slice", ["x", i64(-1), i64(-9), i64(1), i64(-2)], {}, 18),
    ("Split", ["x", i64(1, 2)], {"axis": 1}, 18),
    ("Tile", ["x", i64(2, 3)], {}, 18),
    ("Expand", ["x", i64(2, 2, 3)], {}, 18),
    ("Where", [KEPT, "x", "row"], {}, 18),
    ("Squeeze", ["row", i64(0)], {}, 18),
    ("Unsqueeze", ["x", i64(0, -1)], {}, 18),
    ("ScatterElements", ["x", PLACES, "row"], {}, 18),
    ("Scatter", ["x", PLACES, "row"], {}, 10),
    ("ScatterND", ["x", np.array([[1]]), "row"], {}, 18),
    ("Compress", ["x", KEPT], {"axis": 1}, 18),
    ("Identity", ["x"], {}, 18),
    ("Shape", ["x"], {}, 18),
    ("OneHot", [i64(0, 2), i64(3), "pair"], {}, 18),
    ("ReverseSequence", ["x", i64(2, 1, 2)], {"time_axis": 0, "batch_axis": 1}, 18),
]
PADS: list[tuple[list[Any], dict[str, Any]]] = [
    (["x", i64(1, 0, 0, 2), "one"], {}),
    (["x", i64(1, 0, -1, 2)], {}),
    (["x", i64(1, 0, 0, 2)], {"mode": "edge"}),
    (["x", i64(1, 1, 0, 2)], {"mode": "reflect"}),
    (["x", i64(1, 0, 0, 2)], {"mode": "wrap"}),
]


def as_text(a: Array) -> Array:
    return np.array([f"größe {v:g}" if v else "" for v in a.reshape(-1)], object).reshape(a.shape)


def as_complex(a: Array) -> Array:
    return (a * (1 + 2j)).astype(np.complex64)


def given(names: list[Any], kind: Any) -> list[Array]:
    own = {"x": NUMBERS, "flat": NUMBERS[0], "row": NUMBERS[1:] * 10, "pair": NUMBERS[0, :2], "one": np.array([9.0])}
    return [kind(own[v]) if isinstance(v, str) else v for v in names]


def fixed(arrays: list[Array]) -> list[int]:
    """Inputs that determine the output's shape."""
    return [i for i, a in enumerate(arrays) if i and a.dtype == np.int64 and a.ndim < 2]


@pytest.mark.parametrize(("op", "names", "attrs", "opset"), MOVES, ids=lambda v: v if isinstance(v, str) else "")
def test_text_is_moved_as_onnxruntime_does(op: str, names: list[Any], attrs: dict[str, Any], opset: int) -> None:
    arrays = given(names, as_text)
    how: dict[str, Any] = {"outputs": (0, 1) if op == "Split" else (0,), "opset": opset, **attrs}
    got = imported(op, arrays, const=fixed(arrays), may_use_host=True, **how)
    assert_same(got, by_ort(op, arrays, const=fixed(arrays), **how))


@pytest.mark.parametrize(("op", "names", "attrs", "opset"), MOVES, ids=lambda v: v if isinstance(v, str) else "")
def test_complex_numbers_are_moved_as_real_ones(op: str, names: list[Any], attrs: dict[str, Any], opset: int) -> None:
    how: dict[str, Any] = {"outputs": (0, 1) if op == "Split" else (0,), "opset": opset, **attrs}
    real, wide = given(names, lambda a: a.astype(np.float32)), given(names, as_complex)
    want = imported(op, real, const=fixed(real), may_use_host=True, **how)
    got = imported(op, wide, const=fixed(wide), may_use_host=True, **how)
    assert_same(got, [as_complex(w) if w.dtype == np.float32 else w for w in want])


@pytest.mark.parametrize("kind", [as_text, as_complex])
@pytest.mark.parametrize(("names", "attrs"), PADS)
def test_padding_is_that_of_numbers(names: list[Any], attrs: dict[str, Any], kind: Any) -> None:
    """onnxruntime pads neither strings nor complex numbers."""
    const = range(1, len(names))
    (want,) = imported("Pad", given(names, lambda a: a.astype(np.float32)), const=const, **attrs)
    (got,) = imported("Pad", given(names, kind), const=const, **attrs)
    assert_same([got], [kind(want)])


@pytest.mark.parametrize(
    ("op", "more", "attrs"),
    [
        ("Gather", [i64(7)], {"axis": 1}),
        ("GatherElements", [PLACES + 6], {"axis": 0}),
        ("GatherND", [np.array([[0, 7]])], {}),
        ("ScatterElements", [PLACES + 6, as_text(NUMBERS[:1])], {}),
        ("ScatterND", [np.array([[7]]), as_text(NUMBERS[:1])], {}),
    ],
)
@pytest.mark.parametrize("const", [(), (1,)])
def test_positions_outside_are_refused(op: str, more: list[Array], attrs: dict[str, Any], const: Any) -> None:
    with pytest.raises(ShapeError, match=r"7(.|\n)*expected -[23] to [12]"):
        imported(op, [as_text(NUMBERS), *more], const=const, opset=18, **attrs)


TEXTS = ["1", " 1", "1 ", "+1.5", "-0", "1e3", "0x10", "-0x1.8p3", "1abc", "1_0", "00012", "\t\n7", "300", "1,5"]


@pytest.mark.parametrize("to", [1, 2, 3, 5, 6, 7, 9, 10, 11, 13])
def test_numbers_are_read_from_text_as_onnxruntime_does(to: int) -> None:
    for text in [*TEXTS, *(["inf", "-INF", "nan", ".5", "5.", "1e39"] if to in (1, 10, 11) else ["3000000000", "-1"])]:
        x = np.array([text], object)
        assert_same(imported("Cast", [x], may_use_host=True, to=to), by_ort("Cast", [x], to=to), tol=0)


@pytest.mark.parametrize("text", ["", "abc", "e5", "+", "1e400", "9" * 5000, "\u0661"])
@pytest.mark.parametrize("to", [1, 7, 2])
def test_what_is_no_number_is_refused(text: str, to: int) -> None:
    if to != 1 and text == "1e400":
        text = "99999999999999999999"
    elif to == 1 and text.startswith("99"):
        text = "none"
    with pytest.raises(InputError, match=r"Cast to .* reads"):
        imported("Cast", [np.array([text], object)], may_use_host=True, to=to)


def test_numbers_are_written_as_onnxruntime_does() -> None:
    reals = [0, -0.0, 1, 1e10, 123456789.0, 0.1, 1 / 3, 1e7, 1e8, 1e-5, 1e-4, np.nan, np.inf, -np.inf, 1e-45]
    halves = np.array([0.1, 65504, 1e-7, np.nan, -np.inf], np.float16)
    for x in (
        *(np.array(reals, np.float32), np.array(reals), halves),
        *(np.array([[0], [1], [100]], t) for t in (np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_)),
    ):
        assert_same(imported("Cast", [x], may_use_host=True, to=8), by_ort("Cast", [x], to=8))


def test_samples_of_unknown_modes_are_refused() -> None:
    given = [np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 4), np.float32), i64(0)]
    for how in ({"mode": "sum"}, {"coordinate_transformation_mode": "round"}):
        with pytest.raises(UnsupportedOpError, match="known are"):
            imported("RoiAlign", given, **how)
