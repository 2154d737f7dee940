"""PIR programs: vectors, loops, branches, absent operands, values that are wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from opalite.errors import ModelError, ModelFormatError
from opalite.importer import load_model
from tests.helpers.numpy_session import NumpySession
from tests.helpers.paddle_files import PaddleProgram

X = np.float32([[1, -2, 3], [4, 5, -6]])
F32 = {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, [2, 3], "NCHW", [], 0]}


def op(kind: str, /, inputs: list[int], outputs: list[int], **attrs: Any) -> dict[str, Any]:
    made = [{"%": n, "TT": F32} for n in outputs]
    given = [{"N": k, "AT": v} for k, v in attrs.items()]
    return {"#": kind, "I": [{"%": n} for n in inputs], "O": made, "A": given, "OA": []}


def number(kind: str, value: Any) -> dict[str, Any]:
    return {"#": f"0.a_{kind}", "D": value}


def full(out: int, value: float, dtype: str = "float32") -> dict[str, Any]:
    shape = {"#": "1.a_intarray", "D": [1]}
    return op("1.full", [], [out], shape=shape, value=number("f64", value), dtype=number("dtype", dtype))


def program(*ops: dict[str, Any]) -> bytes:
    block = {"#": "block_0", "args": [], "ops": list(ops)}
    return json.dumps(
        {
            "base_code": {"magic": "pir", "version": 4},
            "program": {"regions": [{"#": "region_0", "blocks": [block]}]},
        }
    ).encode()


DATA = op("1.data", [], [1], name=number("str", "x"))
COUNT = {"#": "0.t_dtensor", "D": [{"#": "0.t_i64"}, [1], "NCHW", [], 0]}


def fetch(value: int, name: str = "y") -> dict[str, Any]:
    return op("1.fetch", [value], [900 + value], name=number("str", name), col=number("i32", 0))


def region(ops: list[Any], args: list[int]) -> dict[str, Any]:
    return {"#": "region", "blocks": [{"#": "b", "args": [{"#": a, "TT": F32} for a in args], "ops": ops}]}


def test_vectors_are_known_by_their_elements() -> None:
    made = PaddleProgram({"x": X}, outputs=("a", "b"))
    made.op("relu", {"X": ["x"]}, {"Out": ["r"]})
    made.op("concat", {"X": ["x", "r"]}, {"Out": ["c"]}, axis=0)
    made.op("split_with_num", {"X": ["c"]}, {"Out": ["a", "b"]}, num=2, axis=1)
    made.ops[-1] = ("unbind", {"X": ["c"]}, {"Out": ["a", "p", "q", "b"]}, {"axis": 0})
    a, b = NumpySession(made.pir()).run({"x": X})
    np.testing.assert_array_equal(a, X[0])
    np.testing.assert_array_equal(b, np.maximum(X[1], 0))


def test_one_element_of_a_vector() -> None:
    vector = {"%": 2, "TT": {"#": "0.t_vec", "D": [F32, F32]}}
    unbind = op("1.unbind", [1], [], axis=number("i32", 0)) | {"O": [vector]}
    second = op("0.slice", [2], [3], index=number("i32", 1))
    (y,) = NumpySession(program(DATA, unbind, second, fetch(3))).run({"x": X})
    np.testing.assert_array_equal(y, X[1])


@pytest.mark.parametrize("limit", [0.0, 3.0])
def test_a_while_whose_block_has_arguments(limit: float) -> None:
    body = [
        op("1.add", [-1, 20], [30]),
        op("1.add", [-2, 1], [31]),
        op("1.less_than", [30, 21], [32]),
        op("2.yield", [32, 30, 31], []),
    ]
    loop = op("1.while", [22, 10, 1], [40, 41]) | {"regions": [region(body, [-1, -2])]}
    ops = [full(10, 0.0), full(20, 1.0), full(21, limit), op("1.less_than", [10, 21], [22]), loop]
    (y,) = NumpySession(program(DATA, *ops, fetch(41))).run({"x": X})
    np.testing.assert_array_equal(y, X * (1 + limit))


@pytest.mark.parametrize("limit", [0.0, 2.0])
def test_a_while_that_appends_to_an_array(limit: float) -> None:
    body = [
        op("1.add", [-1, 20], [30]),
        op("1.multiply", [1, 30], [31]),
        op("1.array_length", [50], [32]),
        op("1.array_write_", [50, 31, 32], [33]),
        op("1.less_than", [30, 21], [34]),
        op("2.yield", [34, 30], []),
    ]
    loop = op("1.while", [22, 10], [40]) | {"regions": [region(body, [-1])]}
    ops = [full(10, 0.0), full(20, 1.0), full(21, limit), op("1.less_than", [10, 21], [22]), full(12, 0.0, "int64")]
    ops += [op("1.create_array", [], [50]), op("1.array_write_", [50, 1, 12], [51]), loop]
    ops.append(op("1.array_to_tensor", [50], [60, 61], axis=number("i32", 0), use_stack=number("bool", True)))
    ops.append(op("1.array_length", [50], [62]))
    y, n = NumpySession(program(DATA, *ops, fetch(60), fetch(62, "n"))).run({"x": X})
    np.testing.assert_array_equal(y, [X, *(X * k for k in range(1, int(limit) + 1))])
    np.testing.assert_array_equal(n, [limit + 1])


@pytest.mark.parametrize("sign", [1, -1])
def test_an_if_that_writes_an_array(sign: int) -> None:
    then = region([op("1.array_write_", [50, 21, 12], [30]), op("2.yield", [1], [])], [])
    branch = op("1.if", [22], [40]) | {"regions": [then, region([op("2.yield", [1], [])], [])]}
    ops = [full(20, 0.0), op("1.max", [1], [21], keepdim=number("bool", False)), op("1.greater_than", [21, 20], [22])]
    ops += [op("1.create_array", [], [50]), full(12, 0.0, "int64"), op("1.array_write_", [50, 20, 12], [51]), branch]
    x = np.abs(X) * sign
    (y,) = NumpySession(program(DATA, *ops, op("1.array_read", [50, 12], [60]), fetch(60))).run({"x": x})
    np.testing.assert_array_equal(y.reshape(-1), [max(0, x.max())])


@pytest.mark.parametrize("sign", [1, -1])
def test_an_if_takes_one_of_two_regions(sign: int) -> None:
    then = region([op("1.relu", [1], [30]), op("2.yield", [30], [])], [])
    other = region([op("2.yield", [1], [])], [])
    branch = op("1.if", [22], [40]) | {"regions": [then, other]}
    ops = [full(20, 0.0), op("1.max", [1], [21], keepdim=number("bool", False)), op("1.greater_than", [21, 20], [22])]
    x = np.abs(X) * sign
    (y,) = NumpySession(program(DATA, *ops, branch, fetch(40))).run({"x": x})
    np.testing.assert_array_equal(y, np.maximum(x, 0) if sign > 0 else x)


def test_one_value_that_is_fetched_twice_and_an_input_that_is() -> None:
    raw = program(DATA, op("1.relu", [1], [2]), fetch(2, "a"), fetch(2, "b"), fetch(1, "c"))
    a, b, c = NumpySession(raw).run({"x": X})
    np.testing.assert_array_equal(a, np.maximum(X, 0))
    np.testing.assert_array_equal(b, a)
    np.testing.assert_array_equal(c, X)


def test_infinite_attributes_are_text() -> None:
    lower = op("1.full", [], [2], shape=number("array", []), value={"#": "0.a_f64", "VD": "-INF"})
    (y,) = NumpySession(program(DATA, lower, op("1.maximum", [1, 2], [3]), fetch(3))).run({"x": X})
    np.testing.assert_array_equal(y, X)


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        ([op("1.relu", [7], [2]), fetch(2)], "value 7 is used before an operator defines it"),
        ([op("1.relu", [1], [1]), fetch(1)], "value 1 is defined twice"),
        ([op("0.split", [1], [2]), fetch(2)], "no vector"),
        ([op("1.while", [1], []) | {"regions": [region([op("2.yield", [1], [])], [])]}, fetch(1)], "a loop carries 0"),
        ([op("1.if", [1], [2]) | {"regions": []}, fetch(2)], "a branch has 0 blocks"),
        ([{"#": "1.relu"}], "damaged PIR program: KeyError"),
        ([op("1.relu", [1], [2]) | {"O": [{"%": 2, "TT": {"#": "0.t_sparsecoo", "D": []}}]}, fetch(2)], "tensors are"),
    ],
)
def test_wrong_programs_are_refused_in_words(ops: list[Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        load_model(program(DATA, *ops))


def test_deep_nesting_ends() -> None:
    inner: list[Any] = [op("2.yield", [1], [])]
    for i in range(40):
        inner = [op("1.if", [1], [100 + i]) | {"regions": [region(inner, []), region([op("2.yield", [1], [])], [])]}]
        inner.append(op("2.yield", [100 + i], []))
    with pytest.raises(ModelFormatError, match="more than 32 blocks"):
        load_model(program(DATA, *inner[:-1], fetch(139)))
    with pytest.raises(ModelFormatError, match="JSON of another kind"):
        load_model(b'{"a":' + b"[" * 100_000)
