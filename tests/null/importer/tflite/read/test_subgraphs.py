"""Control flow, variables and tables of .tflite files, compared with LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ModelFormatError, UnsupportedOpError
from opalite.importer import load_model

from .....helpers.numpy_session import NumpySession
from .....helpers.tflite_files import TfliteFile, litert
from .....helpers.tflite_models import branching_file, counting_file, looping_file
from ....importer.oracles import assert_same
from ..oracles import check_file

F = np.float32


@pytest.mark.parametrize("flag", [True, False])
def test_if_takes_one_branch(flag: bool) -> None:
    check_file(branching_file(), [np.array([flag]), np.array([1, 2, 3], F)])


def test_while_repeats_its_body() -> None:
    model = looping_file()
    for x in ([1, 2, 3], [200, 0, 0]):
        found = check_file(model, [np.array(x, F)])
    assert found[1] == 0


def test_a_variable_is_an_input_and_an_output() -> None:
    model, x = counting_file(), np.array([1, 1], F)
    session = NumpySession(model)
    assert [v.name for v in session.model.inputs] == ["x"]
    assert [v.name for v in session.model.overridable_inputs] == ["total.past"]
    y, total = session.run({"x": x})
    assert_same([y], litert(model, [x]))
    y, total = session.run({"x": x, "total.past": total})
    assert_same([y], litert(model, [x], runs=2))
    assert total.tolist() == [3, 4]


def test_a_branch_that_writes_a_variable() -> None:
    file = TfliteFile()
    main = file.main
    flag, x = main.input(bool, (1,), "flag"), main.input(F, (2,), "x")
    handle, y = main.tensor(13, (1,), "handle"), main.tensor(F, (2,), "y")
    end = main.tensor(F, (2,), "end")
    main.op("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="v")
    main.op("ASSIGN_VARIABLE", [handle, main.constant(np.array([5, 6], F))], [])
    main.op("IF", [flag, handle, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    main.op("READ_VARIABLE", [handle], [end])
    main.output(y, end)
    for name in ("then", "else"):
        graph = file.subgraph(name)
        h, a, b = graph.input(13, (1,), "h"), graph.input(F, (2,), "a"), graph.tensor(F, (2,), "b")
        graph.op("NEG", [a], [b])
        if name == "then":
            graph.op("ASSIGN_VARIABLE", [h, b], [])
        graph.output(b)
    for flag_ in (True, False):
        feeds = {"flag": np.array([flag_]), "x": np.array([1, 2], F)}
        found = NumpySession(file.bytes()).run(feeds)
        assert_same(found[:2], litert(file.bytes(), list(feeds.values())))


def test_a_hash_table_of_constants() -> None:
    file = TfliteFile()
    main = file.main
    words = np.array(["b", "zz"], object)
    asked = main.input(object, (2,), "asked")
    table, found = main.tensor(13, (1,), "table"), main.tensor(np.int64, (2,), "found")
    main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    main.op("HASHTABLE", [], [table], "HashtableOptions", tableId=7, keyDtype=5, valueDtype=4)
    main.op("HASHTABLE_FIND", [table, asked, main.constant(np.array([-1]))], [found])
    main.output(found)
    first = file.subgraph("first")
    own = first.tensor(13, (1,), "table")
    first.op("HASHTABLE", [], [own], "HashtableOptions", tableId=7, keyDtype=5, valueDtype=4)
    keys, values = first.constant(np.array(["a", "b"], object)), first.constant(np.array([10, 20]))
    first.op("HASHTABLE_IMPORT", [own, keys, values], [])
    assert NumpySession(file.bytes()).run({"asked": words})[0].tolist() == [20, -1]


def test_tensors_of_one_name_and_an_output_given_twice() -> None:
    file = TfliteFile()
    x = file.main.input(F, (2,), "t")
    y, z = file.main.tensor(F, (2,), "t"), file.main.tensor(F, (2,), "")
    file.main.op("NEG", [x], [y])
    file.main.op("NEG", [y], [z])
    file.main.output(y, y, z, x)
    check_file(file.bytes(), [np.array([1, 2], F)])


def test_what_the_file_lacks_is_said() -> None:
    file = TfliteFile()
    x, y = file.main.input(F, (2,), "x"), file.main.tensor(F, (2,), "y")
    file.main.op("IF", [x, x], [y], "IfOptions", thenSubgraphIndex=3, elseSubgraphIndex=0)
    file.main.output(y)
    with pytest.raises(ModelFormatError, match="subgraph 3 is none of the file's 1"):
        load_model(file.bytes())
    file = TfliteFile()
    x, y = file.main.input(F, (2,), "x"), file.main.tensor(F, (2,), "y")
    file.main.op("CALL", [x], [y], "CallOptions", subgraph=0)
    file.main.output(y)
    with pytest.raises(UnsupportedOpError, match="subgraph 0 calls itself"):
        load_model(file.bytes())


@pytest.mark.parametrize(
    ("name", "said"),
    [("FlexErf", "version 2.*Select TF ops"), ("MyOwn", "MyOwn node 'y'.*version 2"), ("SKIP_GRAM", "SKIP_GRAM")],
)
def test_an_unknown_operator_is_named(name: str, said: str) -> None:
    file = TfliteFile()
    x, y = file.main.input(F, (2,), "x"), file.main.tensor(F, (2,), "y")
    file.main.op(name, [x], [y], version=2, custom=b"\1")
    file.main.output(y)
    with pytest.raises(UnsupportedOpError, match=said):
        load_model(file.bytes())
