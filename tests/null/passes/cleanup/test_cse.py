"""passes/cleanup/cse.py: what several nodes compute alike is computed once."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ir import DType, Node, TensorType, Value
from opalite.ir.precision import Precision
from opalite.ops.host import HostOp
from opalite.passes.cleanup.cse import merge_equal_nodes
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graphs import GraphMaker, operators
from ..texts import Case, check

CASES = (
    Case(
        "merge_equal_nodes",
        "chains that are equal become one, one step after the other",
        merge_equal_nodes(),
        """
        graph g(%x: f32[4,6], %k: f32[1]) {
            %a = Elementwise(%x, %k) {expr="mul($0, $1)"}
            %b = Elementwise(%x, %k) {expr="mul($0, $1)"}
            %p = Reduce(%a) {axes=[1], keepdims=true, kind="max"}
            %q = Reduce(%b) {axes=[1], keepdims=true, kind="max"}
            %r = Elementwise(%a, %p) {expr="sub($0, $1)"}
            %s = Elementwise(%b, %q) {expr="add($0, $1)"}
            return %r, %s
        }
        """,
        """
        graph g(%x: f32[4,6], %k: f32[1]) {
            %a = Elementwise(%x, %k) {expr="mul($0, $1)"}
            %p = Reduce(%a) {axes=[1], keepdims=true, kind="max"}
            %r = Elementwise(%a, %p) {expr="sub($0, $1)"}
            %s = Elementwise(%a, %p) {expr="add($0, $1)"}
            return %r, %s
        }
        """,
    ),
    Case(
        "merge_equal_nodes",
        "writes into memory stay",
        merge_equal_nodes(),
        """
        graph g(%x: f32[1,4,2], %n: f32[1,1,2]) {
            %a = Append(%x, %n, -) {at=1, axis=1, circular=false}
            %b = Append(%x, %n, -) {at=1, axis=1, circular=false}
            %y = Elementwise(%a, %b) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "merge_equal_nodes",
        "other attributes, inputs and orders of inputs stay",
        merge_equal_nodes(),
        """
        graph g(%x: f32[4,4], %y: f32[4,4]) {
            %a = Reduce(%x) {axes=[1], keepdims=true, kind="max"}
            %b = Reduce(%x) {axes=[0], keepdims=true, kind="max"}
            %c = Reduce(%x) {axes=[1], keepdims=true, kind="sum"}
            %d = Reduce(%y) {axes=[1], keepdims=true, kind="max"}
            %e = Elementwise(%x, %y) {expr="sub($0, $1)"}
            %f = Elementwise(%y, %x) {expr="sub($0, $1)"}
            %z = Concat(%a, %d, %c, %e, %f) {axis=1}
            %w = Elementwise(%z) {expr="tanh($0)"}
            %v = Elementwise(%b) {expr="tanh($0)"}
            return %w, %v
        }
        """,
    ),
    Case(
        "merge_equal_nodes",
        "movements stay each reader's own, and what is computed behind equal ones is one",
        merge_equal_nodes(),
        """
        graph g(%x: f32[4,6]) {
            %a = Transpose(%x) {perm=[1, 0]}
            %b = Transpose(%x) {perm=[1, 0]}
            %c = Transpose(%x) {perm=[1, 0]}
            %p = Reduce(%a) {axes=[1], keepdims=true, kind="max"}
            %q = Reduce(%b) {axes=[1], keepdims=true, kind="max"}
            %r = Elementwise(%c, %p) {expr="sub($0, $1)"}
            %s = Elementwise(%x) {expr="tanh($0)"}
            %t = Elementwise(%q) {expr="tanh($0)"}
            return %r, %s, %t
        }
        """,
        """
        graph g(%x: f32[4,6]) {
            %a = Transpose(%x) {perm=[1, 0]}
            %c = Transpose(%x) {perm=[1, 0]}
            %p = Reduce(%a) {axes=[1], keepdims=true, kind="max"}
            %r = Elementwise(%c, %p) {expr="sub($0, $1)"}
            %s = Elementwise(%x) {expr="tanh($0)"}
            %t = Elementwise(%p) {expr="tanh($0)"}
            return %r, %s, %t
        }
        """,
    ),
    Case(
        "merge_equal_nodes",
        "outputs of the graph are values of their own",
        merge_equal_nodes(),
        """
        graph g(%x: f32[4]) {
            %a = Elementwise(%x) {expr="tanh($0)"}
            %b = Elementwise(%x) {expr="tanh($0)"}
            return %a, %b
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


def left(g: GraphMaker, *outputs: Value) -> list[str]:
    """Operators that are left."""
    graph = g.done(*outputs)
    run_rule(graph, "merge_equal_nodes", merge_equal_nodes(), Context(check=True))
    return operators(graph)


def test_one_node_tells_of_all_that_it_came_from() -> None:
    g = GraphMaker()
    x = g.input("x", 4)
    a, b = (g.map(name, "mul", x, g.const(f"{name}.k", np.float32([2.0]))) for name in "ab")
    assert left(g, g.map("y", "sub", a, b)) == ["Elementwise", "Elementwise"]
    assert [o.name for o in g.graph.nodes[0].origin] == ["a", "b"]


def test_large_constants_are_equal_where_they_are_one() -> None:
    g = GraphMaker()
    x, w = g.input("x", 4, 20), g.noise("w", 20, 20)
    constants = (w, w, g.const("v", w.data))
    products = [
        g.add(name, "MatMul", x, c, trans_a=False, trans_b=False) for name, c in zip("abc", constants, strict=True)
    ]
    assert left(g, g.map("y", lambda a, b, c: a + b * c, *products)) == ["MatMul", "MatMul", "Elementwise"]


def test_zeros_of_either_sign_are_two_numbers() -> None:
    g = GraphMaker()
    x = g.input("x", 4)
    a, b = (g.map(name, lambda v, zero=zero: v.call("min", zero), x) for name, zero in (("a", 0.0), ("b", -0.0)))
    assert left(g, g.map("y", lambda u, v: 1 / u - 1 / v, a, b)) == ["Elementwise"] * 3


def test_what_the_host_computes_stays_apart() -> None:
    """It may give something else each time."""
    g = GraphMaker()
    x = g.input("x", 4)
    for name in "ab":
        node = Node(HostOp("Multinomial", "", 18, b"", (x.type,)), [x], [Value(name, TensorType(x.dtype, x.shape))])
        g.graph.nodes.append(node)
    a, b = (n.y for n in g.graph.nodes)
    assert left(g, g.map("y", "add", a, b)) == ["HostOp", "HostOp", "Elementwise"]


def test_equal_bytes_of_other_types_differ() -> None:
    g = GraphMaker()
    x, plain = g.input("x", 2, 4, dtype=DType.UINT8), {"trans_a": False, "trans_b": False}
    weights = np.arange(120, 136, dtype=np.uint8).reshape(4, 4)
    a, b = (
        g.add(k, "IntegerMatMul", x, g.const(f"{k}.w", weights.view(k)), None, None, **plain) for k in ("int8", "uint8")
    )
    assert left(g, g.map("y", "sub", a, b)).count("IntegerMatMul") == 2


def test_equal_nodes_of_other_precisions_stay() -> None:
    g = GraphMaker()
    x = g.input("x", 4)
    a, b = (g.map(name, "tanh", x) for name in "ab")
    g.graph.nodes[1].precision = Precision.FP16
    assert len(left(g, g.map("y", "sub", a, b))) == 3
