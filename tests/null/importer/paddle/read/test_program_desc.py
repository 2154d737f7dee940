"""ProgramDesc: variables written several times, loops and branches in inner blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ModelError, ModelFormatError, UnsupportedOpError
from opalite.importer import load_model
from opalite.importer.paddle.read.messages import message
from opalite.importer.paddle.read.program_desc import spelled
from tests.helpers.numpy_session import NumpySession
from tests.helpers.paddle_files import PaddleProgram

X = np.float32([1, -2, 3])
ONE = np.int64([1])


def plus(x: str, y: str, out: str, kind: str = "elementwise_add") -> tuple[Any, ...]:
    return kind, {"X": [x], "Y": [y]}, {"Out": [out]}, {}


def test_slots_are_spelled_as_in_pir() -> None:
    assert [spelled(s) for s in ("X", "AxisTensor", "ROIs", "StartsTensorList")] == [
        "x",
        "axis_tensor",
        "rois",
        "starts_tensor_list",
    ]


def test_a_variable_that_is_written_twice() -> None:
    program = PaddleProgram({"x": X}, outputs=("y", "z"))
    program.op("relu", {"X": ["x"]}, {"Out": ["y"]})
    program.op("scale", {"X": ["y"]}, {"Out": ["z"]}, scale=2.0, bias=0.0, bias_after_scale=True)
    program.op("scale", {"X": ["y"]}, {"Out": ["y"]}, scale=-1.0, bias=0.0, bias_after_scale=True)
    y, z = NumpySession(program.program_desc()).run({"x": X})
    np.testing.assert_array_equal(y, [-1, 0, -3])
    np.testing.assert_array_equal(z, [2, 0, 6])


def test_an_input_that_is_overwritten() -> None:
    program = PaddleProgram({"x": X}, outputs=("x",)).op("increment", {"X": ["x"]}, {"Out": ["x"]}, step=2.0)
    session = NumpySession(program.program_desc())
    assert [v.name for v in session.model.outputs] == ["x/out"]
    np.testing.assert_array_equal(session.run({"x": X})[0], X + 2)


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_while_carries_what_its_block_writes(times: int) -> None:
    program = PaddleProgram({"x": X, "n": ONE})
    program.op("fill_constant", {}, {"Out": ["i"]}, shape=(1,), value=0.0, dtype=3)
    program.op("fill_constant", {}, {"Out": ["one"]}, shape=(1,), value=1.0, dtype=3)
    program.op("assign", {"X": ["x"]}, {"Out": ["y"]})
    program.op("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["c"]})
    given = {"X": ["i", "one", "n", "y", "x"], "Condition": ["c"]}
    program.op("while", given, {"Out": ["i", "y", "c"], "StepScopes": ["s"]}, sub_block=1)
    body = [
        plus("y", "x", "y"),
        plus("i", "one", "i"),
        ("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["c"]}, {}),
    ]
    (y,) = NumpySession(program.program_desc([body])).run({"x": X, "n": np.int64([times])})
    np.testing.assert_array_equal(y, X * (times + 1))


@pytest.mark.parametrize("total", [6, -6])
def test_branches_that_a_selection_joins(total: float) -> None:
    """As Paddle writes an if: each branch in a conditional_block, then a select_input of what they gave."""
    program = PaddleProgram({"x": X})
    program.op("fill_constant", {}, {"Out": ["zero"]}, shape=(1,), value=0.0, dtype=5)
    program.op("reduce_sum", {"X": ["x"]}, {"Out": ["s"]}, reduce_all=True, keep_dim=False, dim=(0,))
    program.op("greater_than", {"X": ["s"], "Y": ["zero"]}, {"Out": ["c"]})
    program.op("logical_not", {"X": ["c"]}, {"Out": ["not"]})
    program.op("conditional_block", {"Cond": ["c"], "Input": ["x"]}, {"Out": ["a"], "Scope": ["s1"]}, sub_block=1)
    program.op("conditional_block", {"Cond": ["not"], "Input": ["x"]}, {"Out": ["b"], "Scope": ["s2"]}, sub_block=2)
    program.op("cast", {"X": ["c"]}, {"Out": ["mask"]}, in_dtype=0, out_dtype=2)
    program.op("select_input", {"X": ["b", "a"], "Mask": ["mask"]}, {"Out": ["y"]})
    twice = ("scale", {"X": ["x"]}, {"Out": ["a"]}, {"scale": 2.0, "bias": 0.0, "bias_after_scale": True})
    less = ("scale", {"X": ["x"]}, {"Out": ["b"]}, {"scale": 1.0, "bias": -1.0, "bias_after_scale": True})
    session = NumpySession(program.program_desc([[twice], [less]]))
    x = np.float32([total, 0, 0])
    np.testing.assert_array_equal(session.run({"x": x})[0], x * 2 if total > 0 else x - 1)


def test_a_block_that_is_none_of_the_program() -> None:
    program = PaddleProgram({"x": X}).op("while", {"Condition": ["x"]}, {"Out": ["y"]}, sub_block=7)
    with pytest.raises(ModelFormatError, match="runs block 7"):
        load_model(program.program_desc())


def test_blocks_that_run_each_other() -> None:
    inner = ("while", {"X": ["y"], "Condition": ["c"]}, {"Out": ["y"]}, {"sub_block": 1})
    program = PaddleProgram({"y": X, "c": np.array([True])}, outputs=("y",)).op(*inner[:3], **inner[3])
    with pytest.raises(ModelFormatError, match="more than 32 blocks"):
        load_model(program.program_desc([[inner]]))


def test_no_outputs() -> None:
    with pytest.raises(ModelFormatError, match="holds no Paddle program that gives outputs"):
        load_model(PaddleProgram({"x": X}, outputs=()).program_desc())


def test_an_attribute_of_an_unknown_type() -> None:
    program = message("Program").FromString(
        PaddleProgram({"x": X}).op("relu", {"X": ["x"]}, {"Out": ["y"]}, odd=1).program_desc()
    )
    program.blocks[0].ops[1].attrs[0].type = 99
    with pytest.raises(ModelFormatError, match="attribute 'odd' of operator relu has the unknown type 99"):
        load_model(program.SerializeToString())


def test_complex_attributes_are_refused() -> None:
    program = message("Program").FromString(
        PaddleProgram({"x": X}).op("relu", {"X": ["x"]}, {"Out": ["y"]}, odd=1).program_desc()
    )
    a = program.blocks[0].ops[1].attrs[0]
    a.type = 16
    a.scalar.c.r = 1.0
    with pytest.raises(UnsupportedOpError, match="complex number"):
        load_model(program.SerializeToString())


def test_a_loop_that_would_never_end() -> None:
    step = ("increment", {"X": ["i"]}, {"Out": ["i"]}, {"step": 1.0})
    test = ("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["c"]}, {})
    for body, said in (
        ([step], "its condition depends on nothing new"),
        ([("increment", {"X": ["i"]}, {"Out": ["i"]}, {"step": 0.0}), test], "an iteration changes nothing"),
    ):
        program = PaddleProgram({"n": ONE}, outputs=("i",))
        program.op("fill_constant", {}, {"Out": ["i"]}, shape=(1,), value=0.0, dtype=3)
        program.op("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["c"]})
        program.op("while", {"X": ["i", "n"], "Condition": ["c"]}, {"Out": ["i", "c"]}, sub_block=1)
        with pytest.raises(ModelError, match=said):
            NumpySession(program.program_desc([body])).run({"n": ONE})


def test_an_array_takes_elements_behind_the_last_or_in_place_of_one() -> None:
    given = {"x": X, "i": np.int64([0]), "k": np.int64([1])}
    program = PaddleProgram(given, outputs=("y", "n", "first"))
    program.op("scale", {"X": ["x"]}, {"Out": ["twice"]}, scale=2.0, bias=0.0, bias_after_scale=True)
    for value, index in (("x", "i"), ("x", "k"), ("twice", "i")):
        program.op("write_to_array", {"X": [value], "I": [index]}, {"Out": ["a"]})
    program.op("tensor_array_to_tensor", {"X": ["a"]}, {"Out": ["y"], "OutIndex": ["sizes"]}, axis=0, use_stack=False)
    program.op("lod_array_length", {"X": ["a"]}, {"Out": ["n"]})
    program.op("read_from_array", {"X": ["a"], "I": ["i"]}, {"Out": ["first"]})
    made = message("Program").FromString(program.program_desc())
    made.blocks[0].vars.add(name=b"a").type.type = 13
    y, n, first = NumpySession(made.SerializeToString()).run(given)
    np.testing.assert_array_equal(y, np.concatenate([2 * X, X]))
    np.testing.assert_array_equal(n, [2])
    np.testing.assert_array_equal(first, 2 * X)
