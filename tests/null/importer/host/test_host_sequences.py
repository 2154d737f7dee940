"""Sequences on the host: every position, element types, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

from onnx import TensorProto
from opalite.errors import ShapeError
from opalite.importer.host.onnx_reference import run_host

WORDS = np.array(["This", "is much longer than the first", "", "größer\0"], object)
KINDS = [WORDS, np.arange(4) * (1 + 2j), np.arange(4, dtype=np.complex64), np.arange(4, dtype=np.float16), np.arange(4)]


def run(op_type: str, *inputs: Any, **attrs: Any) -> Any:
    node = oh.make_node(op_type, ["" if x is None else f"x{i}" for i, x in enumerate(inputs)], ["y"], **attrs)
    return run_host(op_type, "", 17, node.SerializeToString(), list(inputs))[0]


def assert_equal(got: Any, want: Any) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (np.shape(g), g.dtype) == (np.shape(w), w.dtype)
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_insert_at_every_position(count: int, dtype: Any) -> None:
    elements = [np.full(i + 1, i, np.float32) for i in range(count)]
    new = np.full(5, 9, np.float32)
    for at in range(-count, count + 1):
        want = list(elements)
        want.insert(at if at >= 0 else count + at, new)
        assert_equal(run("SequenceInsert", elements, new, np.array(at, dtype)), want)
        assert_equal(run("SequenceInsert", elements, new, np.array([at], dtype)), want)
    assert_equal(run("SequenceInsert", elements, new), [*elements, new])
    for at in (-count - 1, count + 1):
        with pytest.raises(ShapeError, match=f"position {at} in a sequence of {count}; expected {-count} to {count}"):
            run("SequenceInsert", elements, new, np.array(at))


@pytest.mark.parametrize("count", range(1, 4))
def test_erase_and_read_at_every_position(count: int) -> None:
    elements = [np.full(i + 1, i, np.float32) for i in range(count)]
    for at in range(-count, count):
        want = list(elements)
        del want[at]
        assert_equal(run("SequenceErase", elements, np.array(at)), want)
        np.testing.assert_array_equal(run("SequenceAt", elements, np.array(at)), elements[at])
    assert_equal(run("SequenceErase", elements), elements[:-1])
    for op in ("SequenceErase", "SequenceAt"):
        for at in (-count - 1, count):
            with pytest.raises(ShapeError, match=f"{op} has position {at} .* expected {-count} to {count - 1}"):
                run(op, elements, np.array(at))


def test_an_empty_sequence() -> None:
    assert run("SequenceEmpty", dtype=TensorProto.STRING) == []
    assert run("SequenceLength", []) == 0
    for op in ("SequenceErase", "SequenceAt"):
        with pytest.raises(ShapeError, match="it has no element"):
            run(op, [], np.array(0))
    with pytest.raises(ShapeError, match="without elements"):
        run("ConcatFromSequence", [], axis=0)


@pytest.mark.parametrize("x", KINDS, ids=lambda x: str(x.dtype))
def test_sequences_hold_every_type(x: np.ndarray[Any, Any]) -> None:
    pieces = run("SplitToSequence", x, axis=0, keepdims=0)
    assert_equal(pieces, [np.asarray(v, x.dtype) for v in x])
    assert_equal([run("ConcatFromSequence", pieces, axis=0, new_axis=1)], [x])
    assert_equal(run("SplitToSequence", x, np.array(3), axis=-1, keepdims=0), [x[:3], x[3:]])
    parts = run("SplitToSequence", x.reshape(2, 2), np.array([0, 2, 0]), axis=1)
    assert [p.shape for p in parts] == [(2, 0), (2, 2), (2, 0)]
    assert_equal([run("ConcatFromSequence", parts, axis=-1)], [x.reshape(2, 2)])
    assert_equal(run("SequenceConstruct", x, x[:1]), [x, x[:1]])
    assert run("SequenceLength", run("SequenceInsert", [x], x[:2], np.array(0))) == 2


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "why"),
    [
        (
            "SequenceInsert",
            [[np.zeros(1)], np.zeros(1, np.float32)],
            {},
            "a tensor of float32 for a sequence of float64",
        ),
        ("SequenceConstruct", [np.zeros(1), np.zeros(1, np.int64)], {}, "a tensor of int64 for a sequence of float64"),
        ("SequenceAt", [[np.zeros(1)], np.array([0, 1])], {}, "must hold one element"),
        ("ConcatFromSequence", [[np.zeros((2, 2)), np.zeros((3, 3))]], {"axis": 0}, r"\[2, 2\], \[3, 3\]"),
        ("ConcatFromSequence", [[np.zeros(2), np.zeros(3)]], {"axis": 0, "new_axis": 1}, r"\[2\], \[3\]"),
        ("ConcatFromSequence", [[np.zeros(2)]], {"axis": 1}, "axis 1"),
        ("SplitToSequence", [np.zeros(4), np.array([1, 2])], {}, r"size 4 into \[1, 2\]"),
        ("SplitToSequence", [np.zeros(4), np.array(0)], {}, "pieces of 0"),
        ("SplitToSequence", [np.zeros(4)], {"axis": 1}, "axis 1"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, inputs: list[Any], attrs: dict[str, Any], why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        run(op, *inputs, **attrs)
