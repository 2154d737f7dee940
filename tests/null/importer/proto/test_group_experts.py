"""Experts that exporters unroll become products with the matrices of the picked experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx
from opalite.importer import load_model

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import by_onnxruntime
from ....helpers.unrolled_experts import WIDTH, Unrolled, kinds, sorted_experts

STYLES = ("trace", "dynamo", "assign")


def compared(model: bytes, feeds: dict[str, Any]) -> NumpySession:
    session = NumpySession(model)
    (want,) = by_onnxruntime(onnx.load_model_from_string(model), feeds)
    np.testing.assert_allclose(session.run(feeds)[0], want, rtol=2e-5, atol=2e-5)
    return session


def tokens(*shape: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(1).standard_normal((*shape, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("bits", [0, 4])
def test_a_loop_is_one_piece_of_static_size(style: str, bits: int) -> None:
    model = Unrolled(style, bits=bits).build()
    session = compared(model, tokens(2, 3))
    assert session.segments == 1
    found = kinds(session.model.graph)
    assert "NonZero" not in found
    assert found.count("ExpertProduct") == 3
    compared(model, tokens(1, 1))


@pytest.mark.parametrize("style", STYLES)
def test_experts_of_another_form_stay(style: str) -> None:
    net = Unrolled(style)
    assert "ExpertProduct" not in kinds(load_model(net.build(activations=("Sigmoid", "Tanh"))).graph)


def test_a_missing_expert_adds_nothing() -> None:
    model = Unrolled("trace").build(networks=[0, 1, 3])
    assert "NonZero" in kinds(compared(model, tokens(1, 6)).model.graph)


def test_an_expert_picked_twice_counts_as_the_model_has_it() -> None:
    for style, twice in (("dynamo", True), ("assign", False)):
        session = compared(Unrolled(style, distinct=False).build(), tokens(1, 4))
        assert ("ExpertProduct" in kinds(session.model.graph)) is twice


def test_rows_that_depend_on_others_stay() -> None:
    proto = onnx.load_model_from_string(Unrolled("trace").build())
    for node in proto.graph.node:
        if node.op_type == "Sigmoid":  # of one expert's rows among each other
            node.op_type = "Softmax"
            node.attribute.append(onnx.helper.make_attribute("axis", 0))
    assert "ExpertProduct" not in kinds(compared(proto.SerializeToString(), tokens(1, 5)).model.graph)


def test_what_others_read_stays() -> None:
    proto = onnx.load_model_from_string(Unrolled("trace").build())
    inner = next(n.output[0] for n in proto.graph.node if n.op_type == "Sigmoid")
    proto.graph.output.append(onnx.helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, ["rows", "width"]))
    assert "ExpertProduct" not in kinds(load_model(proto).graph)


def test_sorted_rows_know_their_expert_by_the_sizes() -> None:
    model = sorted_experts()
    for sizes in ([2, 0, 3, 1], [0, 0, 0, 6]):
        feeds = {**tokens(6), "sizes": np.array(sizes, np.int64)}
        session = compared(model, feeds)
        assert kinds(session.model.graph).count("ExpertProduct") == 1
        assert session.segments == 1
