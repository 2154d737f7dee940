"""onnx's inference over a whole model, including operators that would crash the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from onnx import helper
from opalite.importer.proto.apply_edits import infer_shapes


@pytest.mark.parametrize(
    ("op", "domain", "attrs"),
    [
        ("EyeLike", "", {"dtype": 1}),
        ("LabelEncoder", "ai.onnx.ml", {"keys_int64s": [1], "values_int64s": [2]}),
        ("DictVectorizer", "ai.onnx.ml", {"int64_vocabulary": [1]}),
        ("RegexFullMatch", "", {"pattern": "a"}),
    ],
)
def test_inference_of_an_unknown_type_does_not_end_the_process(op: str, domain: str, attrs: dict[str, Any]) -> None:
    """onnx's inference of these operators reads a missing type: a segmentation fault."""
    script = f"""
from onnx import helper as h
from opalite.importer.proto.apply_edits import infer_shapes
strange = h.make_node("Strange", ["x"], ["u"], domain="nowhere")
nodes = [strange, h.make_node({op!r}, ["u"], ["y"], domain={domain!r}, **{attrs})]
inner = h.make_graph(nodes, "inner", [], [h.make_empty_tensor_value_info("y")])
outer = [*nodes, h.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)]
values = [h.make_tensor_value_info("x", 1, [2, 3]), h.make_tensor_value_info("c", 9, [])]
graph = h.make_graph(outer, "g", values, [h.make_empty_tensor_value_info(n) for n in "yz"])
opsets = [h.make_opsetid("", 21), h.make_opsetid("nowhere", 1), h.make_opsetid("ai.onnx.ml", 3)]
print(len(infer_shapes(h.make_model(graph, opset_imports=opsets)).graph.output))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr


def test_types_go_on_through_operators_whose_inference_is_fragile() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["u"]),
        helper.make_node("EyeLike", ["u"], ["e"], dtype=7),
        helper.make_node("EyeLike", ["e"], ["y"], dtype=1),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [2, 3])], [helper.make_empty_tensor_value_info("y")]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    found = infer_shapes(proto).graph.output[0].type.tensor_type
    assert (found.elem_type, [d.dim_value for d in found.shape.dim]) == (1, [2, 3])
