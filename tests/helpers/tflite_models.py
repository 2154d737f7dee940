"""Small .tflite files with control flow, variables and signatures."""

from __future__ import annotations

import numpy as np

from .tflite_files import RESOURCE, TfliteFile

F = np.float32


def counting_file() -> bytes:
    """A file that adds its input to a variable, which a subgraph sets to [1, 2] once, and returns twice the sum."""
    file = TfliteFile()
    main = file.main
    x = main.input(F, (2,), "x")
    handle, before, after, y = (main.tensor(t, s, n) for t, s, n in _COUNTER)
    main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    main.op("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="total")
    main.op("READ_VARIABLE", [handle], [before])
    main.op("ADD", [before, x], [after], "AddOptions")
    main.op("ASSIGN_VARIABLE", [handle, after], [])
    main.op("MUL", [after, main.constant(F(2))], [y], "MulOptions")
    main.output(y)
    first = file.subgraph("first")
    own = first.tensor(RESOURCE, (1,), "handle")
    first.op("VAR_HANDLE", [], [own], "VarHandleOptions", container="", sharedName="total")
    first.op("ASSIGN_VARIABLE", [own, first.constant(np.array([1, 2], F))], [])
    file.signature("add", {"value": x}, {"doubled": y})
    return file.bytes()


_COUNTER = ((RESOURCE, (1,), "handle"), (F, (2,), "before"), (F, (2,), "after"), (F, (2,), "y"))


def branching_file() -> bytes:
    """A file with IF: x + 1 where the flag holds, else x * x."""
    file = TfliteFile()
    main = file.main
    flag, x = main.input(bool, (1,), "flag"), main.input(F, (3,), "x")
    y = main.tensor(F, (3,), "y")
    main.op("IF", [flag, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    main.output(y)
    for name, op, option in (("then", "ADD", "AddOptions"), ("else", "MUL", "MulOptions")):
        graph = file.subgraph(name)
        a, b = graph.input(F, (3,), "a"), graph.tensor(F, (3,), "b")
        graph.op(op, [a, graph.constant(F(1)) if op == "ADD" else a], [b], option)
        graph.output(b)
    return file.bytes()


def looping_file() -> bytes:
    """A file with WHILE: x doubled until its sum exceeds 100, and how often."""
    file = TfliteFile()
    main = file.main
    x, zero = main.input(F, (3,), "x"), main.constant(np.int32(0))
    y, n = main.tensor(F, (3,), "y"), main.tensor(np.int32, (), "n")
    main.op("WHILE", [x, zero], [y, n], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    main.output(y, n)
    cond = file.subgraph("cond")
    a, _ = cond.input(F, (3,), "a"), cond.input(np.int32, (), "i")
    total, going = cond.tensor(F, (), "total"), cond.tensor(bool, (), "going")
    cond.op("SUM", [a, cond.constant(np.array([0], np.int32))], [total], "ReducerOptions", keepDims=False)
    cond.op("LESS", [total, cond.constant(F(100))], [going])
    cond.output(going)
    body = file.subgraph("body")
    a, i = body.input(F, (3,), "a"), body.input(np.int32, (), "i")
    b, j = body.tensor(F, (3,), "b"), body.tensor(np.int32, (), "j")
    body.op("ADD", [a, a], [b], "AddOptions")
    body.op("ADD", [i, body.constant(np.int32(1))], [j], "AddOptions")
    body.output(b, j)
    return file.bytes()
