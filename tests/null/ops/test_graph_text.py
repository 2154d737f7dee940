"""The graph's text form, and the comparison of graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from opalite.errors import InputError, OpaliteError
from opalite.expr.trace_function import trace
from opalite.ir import HOST, OPENCL, DType, Graph, TensorType, Value, check_graph, packed
from opalite.ops.attention import Attention
from opalite.ops.conv import Conv
from opalite.ops.elementwise import Elementwise
from opalite.ops.host import HostOp
from opalite.ops.strided_view import View

from ...helpers.compare_graphs import graphs_equal
from ...helpers.graph_text import parse_graph, print_graph
from ...helpers.graphs import GraphMaker

NET = """\
graph net(%x: f32[1,8,4,4], %"a b": i64[]) {
    const %w: f32[2,4,1,1] = [1.0, -2.0, 0.5, 0.0, 1e-07, inf, 3.0, 4.0]
    %c: f32[1,2,4,4] @opencl/NC16HW16 = Conv(%x, %w, -) {dilations=[1, 1], epilogue="max($0, 0.0:f32)", group=2, pads=[0, 0, 0, 0], strides=[1, 1]} # first # of all
    const %k: f32[] = [2.0]
    %/l.1/m: f32[1,2,4,4] @opencl/f16/NCHW = Elementwise(%c, %k) {expr="mul($0, $1); add(%0, 1.0:f32)"}
    const %z: f32[1,2,4,4] = fill 0.5
    %s: f32[1,2,4,4] = Elementwise(%/l.1/m, %z) {expr="add($0, $1)"}
    %r: f32[1,32] @host = Reshape(%s) {shape=[1, 32]}
    %v: f32[1,3], %i: i64[1,3] = TopK(%r) {axis=1, k=3, largest=true, sorted=false}
    %n: f32[2,3] = Random() {dtype=f32, high=1.0, kind="uniform", low=0.0, mean=0.0, scale=1.0, seed=5, shape=[2, 3]}
    %h: bool[2], %t: str[1] = HostOp(%"a b") {domain="", op_type="A \\"B\\"", opset=3, proto=bytes "AP8=", types=[bool[2], str[1]]}
    return %v, %i, %h, %"a b", %k
}
"""  # noqa: E501


def conv_text(line: str) -> str:
    return f"graph g(%x: f32[1,8,4,4]) {{\n    const %w: f32[4,8,1,1] = seed 7\n    {line}\n}}"


def net() -> Graph:
    return parse_graph(NET.replace("first # of all", "first"))


def test_printing_is_the_inverse_of_parsing() -> None:
    graph = parse_graph(NET)
    assert print_graph(graph) == NET
    check_graph(graph, "parsing")
    assert graphs_equal(graph, parse_graph(print_graph(graph))) is None


def test_what_parsing_gives() -> None:
    graph = net()
    conv, scale, *_, host = graph.nodes
    assert conv.name == "first"
    assert conv.y.type == TensorType(DType.FLOAT32, (1, 2, 4, 4), OPENCL.with_layout(packed(16)))
    assert conv.inputs[2] is None
    assert conv.epilogue == trace(lambda v: v.call("max", 0), DType.FLOAT32)
    assert scale.y.type.place == OPENCL.with_precision(DType.FLOAT16)
    assert scale.as_(Elementwise).expr.dtypes == (DType.FLOAT32, DType.FLOAT32)
    assert graph.nodes[3].y.type.place == HOST
    assert host.as_(HostOp).proto == b"\x00\xff"
    assert host.as_(HostOp).types == (TensorType(DType.BOOL, (2,)), TensorType(DType.STRING, (1,)))
    assert graph.outputs[3] is graph.inputs[1]


def test_types_may_be_left_out_and_seeds_give_data() -> None:
    attrs = "{dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}"
    graph = parse_graph(conv_text(f"%y = Conv(%x, %w) {attrs}\n    return %y"))
    assert graph.outputs[0].shape == (1, 4, 4, 4)
    weights = graph.nodes[0].input(1).data
    assert weights is not None
    assert weights.std() > 0.5
    assert graphs_equal(graph, parse_graph(conv_text(f"%y = Conv(%x, %w) {attrs}\n    return %y"))) is None


def test_views_are_attributes_too() -> None:
    views = "[view [1, 1, 2, 4] [0, 4, 8, 1] 4, none, none]"
    text = f"""\
graph g(%x: f32[4,4], %k: f32[1,1,2,4]) {{
    %y: f32[1,1,2,4] = Attention(%x, %k, %k, -) {{causal=false, scale=0.5, softcap=0.0, views={views}}}
    return %y
}}
"""
    graph = parse_graph(text)
    assert graph.nodes[0].as_(Attention).views == (View((1, 1, 2, 4), (0, 4, 8, 1), 4), None, None)
    assert print_graph(graph) == text


def test_large_constants_show_a_checksum() -> None:
    g = GraphMaker()
    graph = g.done(g.map("y", "add", g.input("x", 3, 7), g.noise("n", 3, 7)))
    text = print_graph(graph)
    assert "const %n: f32[3,7] = checksum " in text
    assert parse_graph(text).nodes[0].input(1).shape == (3, 7)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "object"])
def test_listed_constants_of_every_type(dtype: str) -> None:
    data = np.array(["a#", 'b"'] if dtype == "object" else [0, 1]).astype(
        DType.BFLOAT16.np if dtype == "bfloat16" else dtype
    )
    graph = Graph("g")
    graph.outputs = [Value("c", TensorType(DType.of(data), data.shape), data)]
    found = parse_graph(print_graph(graph)).outputs[0].data
    assert found is not None
    assert found.dtype == data.dtype
    assert found.tolist() == data.tolist()


@pytest.mark.parametrize(
    "line, words",
    [
        ("%y = Convolve(%x)", "line 3 of the graph: there is no operator 'Convolve'"),
        ("%y = Reshape(%z) {shape=[128]}", "%z is used before it is defined"),
        ("%x = Reshape(%x) {shape=[128]}", "%x is defined again"),
        ("%y: f32[127] = Reshape(%x) {shape=[128]}", r"said to be f32\[127\], but Reshape gives f32\[128\]"),
        ("%y: f99[128] = Reshape(%x) {shape=[128]}", "unknown element type 'f99'"),
        ("%y: f32[128] @moon = Reshape(%x) {shape=[128]}", "'moon' is not a place"),
        ("%y = Reshape(%x {shape=[128]}", "expected ',', got '{shape"),
        ("%y = Reshape(%x) {shape=[128]} more", "expected the end of the line, got 'more'"),
        ('%y = Elementwise(%x) {expr="frob($0)"}', "not an expression of 1 operands"),
        ("%y, %z = Reshape(%x) {shape=[128]}", "Reshape has 1 outputs, got 2"),
        ("const %c: f32[2] = [1.0]", "needs a list of 2 elements"),
        ("const %c: f32[2.5] = [1.0]", "expected a whole number, got '2.5"),
        ("%y = Reshape(%x)", "line 3 of the graph: Reshape needs the attribute shape"),
        ("%y = Reshape(%x) {shape=&}", "'&}' is not understood"),
    ],
)
def test_errors_name_the_line(line: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_graph(conv_text(line))


def test_a_text_must_be_complete() -> None:
    for text in ("", "graph g() {\n return\n"):
        with pytest.raises(InputError, match="starts with 'graph"):
            parse_graph(text)
    with pytest.raises(InputError, match="the end of the text"):
        parse_graph("graph g() {\n}\n}")


def test_attributes_without_text_form_are_refused() -> None:
    graph = net()
    graph.nodes[0].op = replace(graph.nodes[0].as_(Conv), group=cast(Any, object()))
    with pytest.raises(OpaliteError, match="no text form"):
        print_graph(graph)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("%x: f32[1,8,4,4],", "%x: f32[1,8,4,4] @host,", "input %x is"),
        ("max($0, 0.0:f32)", "max($0, 1.0:f32)", "attribute epilogue is"),
        ("[1.0, -2.0", "[1.0, 2.0", "contents of constant %w differ"),
        ("@opencl/NC16HW16", "@opencl/NC8HW8", "%c is f32"),
        ("Elementwise(%c, %k)", "Elementwise(%c, %c)", "input 1"),
        ("return %v, %i, %h, ", "return %v, %h, %i, ", "output 1"),
        ("return %v, %i, ", "return %v, ", "outputs"),
        ("%w, -)", "%w)", "it has 3 inputs"),
    ],
)
def test_comparison_names_the_first_difference(old: str, new: str, words: str) -> None:
    assert old in NET
    why = graphs_equal(parse_graph(NET), parse_graph(NET.replace(old, new)))
    assert why is not None
    assert words in why


def test_comparison_ignores_names() -> None:
    assert (
        graphs_equal(parse_graph(NET), parse_graph(NET.replace("%s", "%other").replace("# first # of all", ""))) is None
    )


def test_comparison_counts_nodes() -> None:
    text = "graph g(%x: f32[2]) {\n    %y = Reshape(%x) {shape=[2, 1]}\n    return %x\n}"
    why = graphs_equal(parse_graph(text), parse_graph(text.replace("    %y = Reshape(%x) {shape=[2, 1]}\n", "")))
    assert why == "one graph has 1 nodes, the other 0: Reshape of %y"
