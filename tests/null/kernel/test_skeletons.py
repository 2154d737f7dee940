"""Skeletons of `opalite kernel new`: fit for the node, loadable as they are, and never in the way of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from opalite.errors import InputError
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.dtype import DType
from opalite.ir.load_plugins import load_plugin
from opalite.kernel.find_node import UnknownNode, find_node
from opalite.kernel.write_skeleton import make_skeleton, write_skeleton
from opalite.ops import all_ops
from opalite.run.report.device_plan import plan_for_device

from ...helpers.registered import registers

__all__ = ["registers"]
pytestmark = pytest.mark.usefixtures("registers")
DEVICE = read_description("pocl_avx2")
HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]> g (float[N, 6] x) => (float[N, 6] y, int64[4] z)'
TEXT = """{
    a = Neg(x)
    b, z = com.example.Mine<cost = 3, ratios = [0.5, 2.0], mode = "fast">(a)
    c = com.example.Other(b)
    y = Softmax(c)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(HEAD + TEXT).SerializeToString())
    return path


def test_an_unknown_operator_gets_attributes_and_types(model: Path, tmp_path: Path) -> None:
    node = find_node(model, "Mine", DEVICE, {})
    assert isinstance(node, UnknownNode)
    assert node.attributes == {"cost": 3, "ratios": (0.5, 2.0), "mode": "fast"}
    assert [str(t) for t in node.outputs] == ["f32[1,6]", "i64[4]"]
    assert node.guessed
    paths = write_skeleton(make_skeleton("mine", node, DEVICE), tmp_path)
    assert [p.name for p in paths] == ["mine.py", "mine.cl", "test_mine.py"]
    load_plugin(str(paths[0]))
    op = all_ops()["Mine"]()
    assert op.attributes() == {}
    assert (op.cost_, op.ratios, op.mode) == (3, (0.5, 2.0), "fast")  # type: ignore[attr-defined]
    first, second = op.reference([np.arange(12, dtype=np.float32).reshape(2, 6)])
    np.testing.assert_array_equal(first, np.arange(12).reshape(2, 6))
    np.testing.assert_array_equal(second, np.arange(4))
    with pytest.raises(InputError, match=r"mine.py, .*test_mine.py exists already"):
        write_skeleton(make_skeleton("mine", node, DEVICE), tmp_path)


def test_a_model_of_registered_operators_is_planned(model: Path, tmp_path: Path) -> None:
    for name, node in (("mine", "b"), ("other", "Other")):
        with pytest.raises(InputError, match="no node of an unknown operator is named 'y'"):
            find_node(model, "y", DEVICE, {})
        path, *_ = write_skeleton(make_skeleton(name, find_node(model, node, DEVICE, {}), DEVICE), tmp_path)
        load_plugin(str(path))
    kernels = [r.kernel for r in plan_for_device(model, DEVICE).nodes]
    assert {"MineKernel", "OtherKernel"} <= set(kernels)
    path, *_ = write_skeleton(make_skeleton("my_softmax", find_node(model, "y", DEVICE, {}), DEVICE), tmp_path)
    load_plugin(str(path))
    (report,) = [r for r in plan_for_device(model, DEVICE).nodes if r.op == "Softmax"]
    times = {name: seconds for name, _, seconds, _ in report.candidates}
    assert times["MySoftmax"] == times[report.kernel], "a copy is expected to take as long"


@pytest.mark.parametrize(
    "name, text", [("my-roll", "'my-roll' is no name of a Python module"), ("class", "'class' is no name")]
)
def test_names_that_are_none(model: Path, name: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make_skeleton(name, find_node(model, "Mine", DEVICE, {}), DEVICE)


def test_a_kernel_with_constants_and_an_epilogue(tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 8, 9, 9] x) => (float[1, 3, 9, 9] y) '
    weights = "<float[3, 8, 3, 3] w = {" + ", ".join(["1.0"] * 216) + "}>"
    text = f"{head} {weights} {{ a = Conv<pads = [1, 1, 1, 1]>(x, w) y = Relu(a) }}"
    (tmp_path / "conv.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    found = make_skeleton("mine", find_node(tmp_path / "conv.onnx", "Conv", DEVICE, {}), DEVICE)
    text = found.files["mine.py"]
    assert '["f32[1,8,9,9]", "f32[3,8,3,3]", None],\n        const=(1,),\n        epilogue=expression(' in text
    path, *_ = write_skeleton(found, tmp_path)
    (case,) = load_plugin(str(path)).CASES
    assert case.node(case.arrays()).epilogue is not None


def test_open_sizes_in_attributes_are_hints(tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 6] x) => (float[N, 2] y) '
    text = head + "<int64[1] a = {1}, int64[1] b = {3}> { c = Exp(x) d = Slice(c, a, b, a) y = Softmax(d) }"
    (tmp_path / "slice.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    found = make_skeleton("mine", find_node(tmp_path / "slice.onnx", "Slice", DEVICE, {"x": (4, 6)}), DEVICE)
    assert "sizes=(4, 2)" in found.files["mine.py"]
    path, *_ = write_skeleton(found, tmp_path)
    assert load_plugin(str(path)).CASES[0].types[0] == (DType.FLOAT32, (4, 6))


def test_lengths_grow_until_the_model_can_be_imported(tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, T] x) => (float[1, 1, S] y) '
    text = head + f"<float[1, 1, 40] w = {{{', '.join(['1.0'] * 40)}}}> {{ y = Conv(x, w) }}"
    (tmp_path / "sound.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    node = find_node(tmp_path / "sound.onnx", "Conv", DEVICE, {})
    assert not isinstance(node, UnknownNode)
    assert node.x.shape[-1] > 39
