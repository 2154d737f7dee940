"""Bad models and bad input: an Opalite error that says what was expected, what came and what to do; never a crash."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402


def make_model(*nodes: Any, shape: Any = ("n", 4), domains: tuple[str, ...] = ("",)) -> bytes:
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(list(nodes), "g", ins, outs)
    opsets = [helper.make_opsetid(d, 17 if not d else 1) for d in domains]
    raw: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return raw


RELU = helper.make_node("Relu", ["x"], ["y"], "relu")


def test_damaged_files(tmp_path: Path) -> None:
    whole = make_model(RELU)
    path = tmp_path / "m.onnx"
    for raw in (b"", b"not a model", whole[: len(whole) // 2], whole[:-3]):
        path.write_bytes(raw)
        with pytest.raises(opalite.ModelFormatError, match=r"m\.onnx"):
            opalite.InferenceSession(path).run(None, {"x": np.zeros((1, 4), np.float32)})
    for missing in (tmp_path, tmp_path / "absent.onnx"):
        with pytest.raises(opalite.OpaliteError):
            opalite.InferenceSession(missing)


@pytest.mark.parametrize("length", range(1, 90, 4))
def test_truncation_at_any_length_is_an_error_or_a_model(length: int) -> None:
    with contextlib.suppress(opalite.OpaliteError):  # any other exception fails the test
        opalite.InferenceSession(make_model(RELU)[:length]).run(None, {"x": np.zeros((1, 4), np.float32)})


def test_unknown_operator_and_domain() -> None:
    with pytest.raises(opalite.UnsupportedOpError, match="Rellu"):
        opalite.InferenceSession(make_model(helper.make_node("Rellu", ["x"], ["y"], "n")))
    node = helper.make_node("Magic", ["x"], ["y"], "n", domain="my.company")
    with pytest.raises(opalite.UnsupportedOpError, match=r"my\.company"):
        opalite.InferenceSession(make_model(node, domains=("", "my.company")))


@pytest.mark.parametrize(
    "feeds, words",
    [
        ({"z": np.zeros((1, 4), np.float32)}, ("z", "x")),
        ({}, ("x",)),
        ({"x": np.zeros((1, 4), np.complex64)}, ("x", "complex64")),
        ({"x": np.zeros((1, 4, 1), np.float32)}, ("x", "rank", "2")),
        ({"x": np.zeros((1, 5), np.float32)}, ("x", "5", "4")),
    ],
)
def test_wrong_feeds(feeds: dict[str, Any], words: tuple[str, ...]) -> None:
    session = opalite.InferenceSession(make_model(RELU))
    with pytest.raises(opalite.InputError) as caught:
        session.run(None, feeds)
    for word in words:
        assert word in str(caught.value)


def test_shapes_that_do_not_fit_name_the_node() -> None:
    node = helper.make_node("MatMul", ["x", "x"], ["y"], "product")
    session = opalite.InferenceSession(make_model(node, shape=(3, 4)))
    with pytest.raises(opalite.ShapeError, match="product"):
        session.run(None, {"x": np.zeros((3, 4), np.float32)})


def test_no_such_device() -> None:
    with pytest.raises(opalite.NoDeviceError, match="nonsense"):
        opalite.InferenceSession(make_model(RELU), device="nonsense")


def test_a_model_larger_than_the_device() -> None:
    node = helper.make_node("Expand", ["x", "shape"], ["e"], "grow")
    shape = helper.make_node("Constant", [], ["shape"], "c", value_ints=[1 << 26, 1 << 10, 4])
    total = helper.make_node("Softmax", ["e"], ["y"], "s")
    session = opalite.InferenceSession(make_model(shape, node, total, shape=(1, 4)))
    with pytest.raises(opalite.DeviceMemoryError, match=r"[MGT]iB"):
        session.run(None, {"x": np.zeros((1, 4), np.float32)})
