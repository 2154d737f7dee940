"""Small models for idioms, as bytes. Each is built once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

Port = tuple[str, int, Sequence[Any] | None]

X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
W = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
KINDS = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
KINDS.append("bool")
"""NumPy's types of numbers that are ONNX's too."""


def build(nodes: Sequence[Any], ins: Sequence[Port], outs: Sequence[Port], opset: int = 17, **weights: Any) -> Any:
    """A ModelProto."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(*p) for p in ins],
        [helper.make_tensor_value_info(*p) for p in outs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 21 else 10, producer_name="dropin")


@cache
def multiply() -> bytes:
    """Y = X * W of [3, 2]."""
    node = helper.make_node("Mul", ["X", "W"], ["Y"], name="mul_0")
    return build([node], [("X", T.FLOAT, [3, 2])], [("Y", T.FLOAT, [3, 2])], W=W).SerializeToString()


@cache
def product() -> bytes:
    """Y = X Z of open sizes; Y has no declared shape."""
    node = helper.make_node("MatMul", ["X", "Z"], ["Y"])
    ins = [("X", T.FLOAT, ["rows", "inner"]), ("Z", T.FLOAT, ["inner", "columns"])]
    return build([node], ins, [("Y", T.FLOAT, None)]).SerializeToString()


@cache
def logical() -> bytes:
    """out = input1 and input0, in this order; bool [2, 2]."""
    ins = [("input1:0", T.BOOL, [2, 2]), ("input:0", T.BOOL, [2, 2])]
    node = helper.make_node("And", ["input1:0", "input:0"], ["output:0"])
    return build([node], ins, [("output:0", T.BOOL, [2, 2])]).SerializeToString()


@cache
def same(kind: int = T.FLOAT, shape: tuple[Any, ...] = (2, 2)) -> bytes:
    """Y = Identity(X) of any type."""
    node = helper.make_node("Identity", ["X"], ["Y"])
    return build([node], [("X", kind, list(shape))], [("Y", kind, list(shape))]).SerializeToString()


@cache
def two_outputs() -> bytes:
    """sum = A + B and difference = A - B of ten."""
    nodes = [helper.make_node("Add", ["A", "B"], ["sum"]), helper.make_node("Sub", ["A", "B"], ["difference"])]
    ins = [("A", T.FLOAT, [10]), ("B", T.FLOAT, [10])]
    return build(nodes, ins, [("sum", T.FLOAT, [10]), ("difference", T.FLOAT, [10])]).SerializeToString()


@cache
def passed_through() -> bytes:
    """plus = X + 10, and X itself as an output."""
    node = helper.make_node("Add", ["X", "ten"], ["plus"])
    outs = [("plus", T.FLOAT, [2, 2]), ("X", T.FLOAT, [2, 2])]
    return build([node], [("X", T.FLOAT, [2, 2])], outs, ten=np.float32(10)).SerializeToString()


@cache
def scalar() -> bytes:
    """Y = X + 1 of rank 0."""
    node = helper.make_node("Add", ["X", "one"], ["Y"])
    return build([node], [("X", T.FLOAT, [])], [("Y", T.FLOAT, [])], one=np.float32(1)).SerializeToString()


@cache
def constructed() -> bytes:
    """Y = the sequence [A, B] of int64 [2, 3]."""
    model = build(
        [helper.make_node("SequenceConstruct", ["A", "B"], ["Y"])], [("A", T.INT64, [2, 3]), ("B", T.INT64, [2, 3])], []
    )
    model.graph.output.append(helper.make_tensor_sequence_value_info("Y", T.INT64, None))
    return bytes(model.SerializeToString())


@cache
def inserted() -> bytes:
    """Y = the sequence S with the tensor A appended."""
    model = build([helper.make_node("SequenceInsert", ["S", "A"], ["Y"])], [("A", T.INT64, [2, 3])], [])
    model.graph.input.insert(0, helper.make_tensor_sequence_value_info("S", T.INT64, None))
    model.graph.output.append(helper.make_tensor_sequence_value_info("Y", T.INT64, None))
    return bytes(model.SerializeToString())


@cache
def length() -> bytes:
    """Y = the number of tensors in the sequence X."""
    model = build([helper.make_node("SequenceLength", ["X"], ["Y"])], [], [("Y", T.INT64, [])])
    model.graph.input.append(helper.make_tensor_sequence_value_info("X", T.FLOAT, None))
    return bytes(model.SerializeToString())


@cache
def optional_sequence() -> bytes:
    """Y = the sequence in the optional X."""
    model = build([helper.make_node("OptionalGetElement", ["X"], ["Y"])], [], [])
    seq = helper.make_sequence_type_proto(helper.make_tensor_type_proto(T.FLOAT, None))
    model.graph.input.append(helper.make_value_info("X", helper.make_optional_type_proto(seq)))
    model.graph.output.append(helper.make_value_info("Y", seq))
    return bytes(model.SerializeToString())


@cache
def optional_tensor() -> bytes:
    """Y = whether the optional X holds a tensor."""
    model = build([helper.make_node("OptionalHasElement", ["X"], ["Y"])], [], [("Y", T.BOOL, [])])
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(T.FLOAT, [2]))
    model.graph.input.append(helper.make_value_info("X", kind))
    return bytes(model.SerializeToString())


@cache
def zipped(by_text: bool) -> bytes:
    """Z = a list of dicts from class to number."""
    classes = {"classlabels_strings": ["a", "b", "c"]} if by_text else {"classlabels_int64s": [10, 20, 30]}
    node = helper.make_node("ZipMap", ["X"], ["Z"], domain="ai.onnx.ml", **classes)
    model = build([node], [("X", T.FLOAT, [2, 3])], [])
    value = model.graph.output.add(name="Z").type.sequence_type.elem_type.map_type
    value.key_type = T.STRING if by_text else T.INT64
    value.value_type.tensor_type.elem_type = T.FLOAT
    return bytes(model.SerializeToString())


@cache
def vectorized() -> bytes:
    """Y = the numbers of a dict by key, in the order 0, 2, 5."""
    node = helper.make_node("DictVectorizer", ["X"], ["Y"], domain="ai.onnx.ml", int64_vocabulary=[0, 2, 5])
    model = build([node], [], [("Y", T.FLOAT, [1, 3])])
    value = model.graph.input.add(name="X").type.map_type
    value.key_type = T.INT64
    value.value_type.tensor_type.elem_type = T.FLOAT
    return bytes(model.SerializeToString())


@cache
def encoded() -> bytes:
    """Y = the number of each text."""
    node = helper.make_node(
        "LabelEncoder",
        ["X"],
        ["Y"],
        domain="ai.onnx.ml",
        keys_strings=["4", "cat"],
        values_int64s=[3, 7],
        default_int64=-1,
    )
    return build([node], [("X", T.STRING, [None, 1])], [("Y", T.INT64, [None, 1])]).SerializeToString()


@cache
def cast(source: int, target: int, shape: Sequence[int] = (2,), opset: int = 17) -> bytes:
    """Y = X of another type."""
    node = helper.make_node("Cast", ["X"], ["Y"], to=target)
    return build([node], [("X", source, shape)], [("Y", target, shape)], opset).SerializeToString()


@cache
def described() -> bytes:
    """`multiply` with metadata of every kind."""
    model = onnx.load_from_string(multiply())
    model.domain, model.doc_string, model.model_version = "org.example", "what it does", 7
    model.graph.doc_string = "the graph"
    helper.set_model_props(model, {"author": "somebody", "labels": "a,b"})
    return bytes(model.SerializeToString())


@cache
def denoted() -> bytes:
    """Y = |X| of [Dim1, Dim2, 5], denoted as batch and channels."""
    model = build(
        [helper.make_node("Abs", ["X"], ["Y"])],
        [("X", T.FLOAT, ["Dim1", "Dim2", 5])],
        [("Y", T.FLOAT, ["Dim1", "Dim2", 5])],
    )
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].denotation, dims[1].denotation = "DATA_BATCH", "DATA_CHANNEL"
    return bytes(model.SerializeToString())


@cache
def overridable() -> bytes:
    """Y = X * W, where W is an input with a value of its own."""
    node = helper.make_node("Mul", ["X", "W"], ["Y"])
    ins = [("X", T.FLOAT, [3, 2]), ("W", T.FLOAT, [3, 2])]
    return build([node], ins, [("Y", T.FLOAT, [3, 2])], W=W).SerializeToString()


@cache
def external(location: str) -> bytes:
    """`multiply` with W in the external file `location`."""
    model = onnx.load_from_string(multiply())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = T.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(W.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString())


@cache
def random_numbers() -> bytes:
    """Y = X + noise of three."""
    nodes = [helper.make_node("RandomNormalLike", ["X"], ["R"]), helper.make_node("Add", ["X", "R"], ["Y"])]
    return build(nodes, [("X", T.FLOAT, [3])], [("Y", T.FLOAT, [3])]).SerializeToString()


@cache
def chain() -> bytes:
    """Y = (X + 1) * 2 + 3."""
    nodes = [
        helper.make_node("Add", ["X", "one"], ["a"], name="add_0"),
        helper.make_node("Mul", ["a", "two"], ["b"], name="mul_0"),
        helper.make_node("Add", ["b", "three"], ["Y"], name="add_1"),
    ]
    numbers = {"one": np.float32(1), "two": np.float32(2), "three": np.float32(3)}
    return build(nodes, [("X", T.FLOAT, [3, 2])], [("Y", T.FLOAT, [3, 2])], **numbers).SerializeToString()


@cache
def faulty(kind: str) -> bytes:
    """Models that cannot be loaded, by what is wrong."""
    ins, outs = [("X", T.FLOAT, [3, 2])], [("Y", T.FLOAT, [3, 2])]
    node = {
        "operator": helper.make_node("Foo", ["X"], ["Y"]),
        "domain": helper.make_node("Foo", ["X"], ["Y"], domain="my.domain"),
        "edge": helper.make_node("Relu", ["nowhere"], ["Y"]),
    }[kind]
    return build([node], ins, outs).SerializeToString()
