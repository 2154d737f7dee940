"""opalite.lite.Interpreter, compared with LiteRT's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.lite import Interpreter, SignatureRunner, load_delegate

from ...helpers.tflite_files import TfliteFile
from ...helpers.tflite_models import counting_file

litert = pytest.importorskip("ai_edge_litert.interpreter")
F = np.float32


def dense_file() -> bytes:
    """A file of a product of rows by a constant, plus a constant; the number of rows is open."""
    file = TfliteFile()
    x = file.main.input(F, (1, 3), "x", signature=(-1, 3))
    w, b = file.main.constant(np.arange(6, dtype=F).reshape(2, 3), "w"), file.main.constant(np.ones(2, F), "b")
    y = file.main.tensor(F, (1, 2), "y", signature=(-1, 2))
    file.main.op("FULLY_CONNECTED", [x, w, b], [y], "FullyConnectedOptions", keepNumDims=True)
    file.main.output(y)
    file.signature("serve", {"in": x}, {"out": y})
    return file.bytes()


@pytest.fixture(scope="module")
def model() -> bytes:
    return dense_file()


def test_details_are_those_of_litert(model: bytes) -> None:
    own, other = Interpreter(model_content=model), litert.Interpreter(model_content=model)
    for name in ("get_input_details", "get_output_details", "get_tensor_details"):
        np.testing.assert_equal(getattr(own, name)(), getattr(other, name)()[: len(own.get_tensor_details())])
    assert own.get_signature_list() == other.get_signature_list()
    assert own.num_subgraphs() == 1


def test_a_run_by_set_tensor_and_by_the_tensors_memory(model: bytes) -> None:
    own = Interpreter(model_content=model, num_threads=2)
    own.allocate_tensors()
    x = np.array([[1, 2, 3]], F)
    own.set_tensor(0, x)
    own.invoke()
    out = own.get_output_details()[0]["index"]
    assert own.get_tensor(out).tolist() == [[9, 27]]
    memory = own.tensor(own.get_input_details()[0]["index"])
    memory()[:] = 0
    own.invoke()
    assert own.tensor(out)().tolist() == [[1, 1]]
    held = memory()
    with pytest.raises(RuntimeError, match="at least 1 reference to internal data"):
        own.invoke()
    del held
    own.invoke()
    assert own.get_tensor(1).shape == (2, 3)  # a constant


def test_a_resized_input(model: bytes) -> None:
    own = Interpreter(model_content=model)
    own.resize_tensor_input(0, [4, 3], strict=True)
    with pytest.raises(RuntimeError, match="not ready"):
        own.invoke()
    own.allocate_tensors()
    assert own.get_output_details()[0]["shape"].tolist() == [4, 2]
    own.set_tensor(0, np.ones((4, 3), F))
    own.invoke()
    assert own.get_tensor(own.get_output_details()[0]["index"]).tolist() == [[4, 13]] * 4
    with pytest.raises(RuntimeError, match="dimension 1 of tensor 0 with value 3 to 6"):
        own.resize_tensor_input(0, [4, 6], strict=True)
    own.resize_tensor_input(0, [4, 6])
    with pytest.raises(RuntimeError, match="rows of 3 elements"):
        own.allocate_tensors()


def test_a_size_that_the_file_fixes_may_be_changed() -> None:
    file = TfliteFile()
    x, y = file.main.input(F, (2,), "x"), file.main.tensor(F, (2,), "y")
    file.main.op("NEG", [x], [y])
    file.main.output(y)
    own = Interpreter(model_content=file.bytes())
    own.resize_tensor_input(0, [5])
    own.allocate_tensors()
    own.set_tensor(0, np.arange(5, dtype=F))
    own.invoke()
    assert own.get_tensor(1).tolist() == [0, -1, -2, -3, -4]


def test_variables_last_from_one_run_to_the_next() -> None:
    model, x = counting_file(), np.array([1, 1], F)
    own, other = Interpreter(model_content=model), litert.Interpreter(model_content=model)
    for one in (own, other):
        one.allocate_tensors()
    out = own.get_output_details()[0]["index"]
    for _ in range(3):
        for one in (own, other):
            one.set_tensor(0, x)
            one.invoke()
        assert own.get_tensor(out).tolist() == other.get_tensor(out).tolist()
    for one in (own, other):
        one.reset_all_variables()  # of tensors, not of VAR_HANDLE
        one.invoke()
    assert own.get_tensor(out).tolist() == other.get_tensor(out).tolist() == [10, 12]
    runner = own.get_signature_runner()
    assert isinstance(runner, SignatureRunner)
    assert runner(value=x)["doubled"].tolist() == [12, 14]  # of the same variable
    assert list(runner.get_input_details()) == ["value"]
    assert runner.get_output_details()["doubled"]["shape"].tolist() == [2]


def test_a_session_keeps_variables_as_state() -> None:
    session = opalite.InferenceSession(counting_file())
    state = session.state()
    x = np.array([1, 1], F)
    assert [state.run({"x": x})[0].tolist() for _ in range(2)] == [[4, 6], [6, 8]]
    assert session.run(["y"], {"x": x})[0].tolist() == [4, 6]  # from the first values


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda i: i.set_tensor(0, np.zeros((1, 3))), ValueError, "type FLOAT64 but expected type FLOAT32 for input 0"),
    (lambda i: i.set_tensor(0, np.zeros((1, 4), F)), ValueError, "Got 4 but expected 3 for dimension 1"),
    (lambda i: i.set_tensor(0, np.zeros(3, F)), ValueError, "Got 1 but expected 2 for input 0"),
    (lambda i: i.set_tensor(2, np.zeros(2, F)), ValueError, "'b' .2. is no input"),
    (lambda i: i.get_tensor(99), ValueError, "Invalid tensor index 99"),
    (lambda i: i.resize_tensor_input(2, [3]), RuntimeError, "is no input"),
    (lambda i: i.get_signature_runner("x"), ValueError, 'Invalid signature_key provided: "x"'),
    (lambda i: i.get_signature_runner()(), ValueError, "expected 1 vs provided 0"),
    (lambda i: i.get_signature_runner()(y=1), ValueError, "Invalid Input name .y."),
    (lambda i: i.get_tensor_details(3), ValueError, "subgraph_index is out of range: 3"),
]


def test_wrong_calls_raise_what_litert_raises(model: bytes) -> None:
    own = Interpreter(model_content=model)
    own.allocate_tensors()
    for call, kind, said in WRONG:
        with pytest.raises(kind, match=said):
            call(own)


def test_wrong_arguments(model: bytes, tmp_path: Path) -> None:
    for arguments, said in (
        ({}, "must be specified"),
        ({"model_path": "x", "model_content": model}, "both"),
        ({"model_path": str(tmp_path / "none")}, "Could not open .*none"),
        ({"model_content": b"junk junk"}, "not a valid Flatbuffer"),
        ({"model_content": model[: len(model) // 2]}, "damaged or was cut off"),
        ({"model_content": model, "num_threads": "a"}, "should be int"),
        ({"model_content": model, "num_threads": 0}, ">= 1"),
        ({"model_content": model, "experimental_delegates": [1]}, "leave delegates out"),
    ):
        with pytest.raises(ValueError, match=said):
            Interpreter(**arguments)
    with pytest.raises(ValueError, match=r"libedgetpu.*leave delegates out"):
        load_delegate("libedgetpu.so.1")
    with pytest.raises(RuntimeError, match="not ready"):
        Interpreter(model_content=model).invoke()
