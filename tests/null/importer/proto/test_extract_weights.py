"""Large weights are extracted from the file's bytes before protobuf parses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
from onnx import TensorProto, helper, numpy_helper
from opalite.errors import ModelFormatError
from opalite.importer import load_model
from opalite.importer.proto.extract_weights import LARGE, FileView, load_weights
from opalite.ir.constants.lazy_array import LARGE as PAGED
from opalite.ir.constants.lazy_array import LazyArray
from opalite.ir.constants.model_file import ModelFile

RNG = np.random.default_rng(2)


def model_of(arrays: dict[str, Any]) -> Any:
    names = list(arrays)
    node = helper.make_node("Sum", ["x", *names], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph([node], "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


ARRAYS = {
    "small": RNG.standard_normal(3).astype(np.float32),
    "large": RNG.standard_normal((7, 301)).astype(np.float32),
    "wide": np.arange(1000, dtype=np.int64),
    "scalar": np.asarray(4, np.float32),
    "half": RNG.standard_normal(2000).astype(np.float16),
}


def test_what_is_left_is_the_message_without_the_data() -> None:
    model = model_of(ARRAYS)
    raw = model.SerializeToString()
    rest, weights = load_weights(raw)
    assert sorted(weights) == [1, 2, 4]
    assert len(rest) < len(raw) - sum(w.nbytes for w in weights.values()) + LARGE
    for i in weights:
        model.graph.initializer[i].ClearField("raw_data")
    assert onnx.ModelProto.FromString(rest) == model


def test_weights_are_views_of_the_file() -> None:
    raw = model_of(ARRAYS).SerializeToString()
    constants = load_model(raw).graph.constants
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(constants[name], array)
        assert constants[name].dtype == array.dtype
    whole = np.frombuffer(raw, np.uint8)
    assert np.shares_memory(constants["large"], whole)
    assert not constants["large"].flags.writeable


def test_weights_outside_raw_data_stay_where_they_are() -> None:
    model = model_of({})
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [500], np.arange(500.0)))
    model.graph.node[0].input.append("w")
    raw = model.SerializeToString()
    assert load_weights(raw) == (raw, {})
    np.testing.assert_array_equal(load_model(raw).graph.constants["w"], np.arange(500))


def test_packed_types_are_unpacked() -> None:
    values = RNG.integers(-8, 8, 4001)
    model = model_of({})
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [4001], values))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(model.graph.initializer[0]), "w"))
    raw = model.SerializeToString()
    assert len(load_weights(raw)[1]) == 1
    np.testing.assert_array_equal(load_model(raw).graph.constants["w"].astype(np.int64), values)


def test_data_of_the_wrong_size() -> None:
    model = model_of({"w": ARRAYS["large"]})
    model.graph.initializer[0].dims[0] = 8
    with pytest.raises(ModelFormatError, match=r"tensor 'w' of type float and shape \[8, 301\] cannot be read"):
        load_model(model.SerializeToString())


@pytest.mark.parametrize(
    "raw", [b"", b"\x08", b"\x3a\xff\xff\xff\xff\x7f", b"\x3b\x00", b"\x3a\x02\x2a\x7f", b"\xff" * 40]
)
def test_broken_messages_come_back_whole(raw: bytes) -> None:
    assert load_weights(raw) == (raw, {})


def test_every_cut_comes_back_whole_or_valid() -> None:
    raw = model_of(ARRAYS).SerializeToString()
    for end in range(0, len(raw), 997):
        rest, weights = load_weights(raw[:end])
        assert weights or rest == raw[:end]


# Files


def open_view(path: Path, raw: bytes) -> FileView:
    path.write_bytes(raw)
    return FileView(ModelFile(path))


def test_a_file_gives_what_its_bytes_give(tmp_path: Path) -> None:
    raw = model_of(ARRAYS).SerializeToString()
    rest, weights = load_weights(open_view(tmp_path / "m.onnx", raw))
    want, views = load_weights(raw)
    assert rest == want
    assert {i: part.read().tobytes() for i, part in weights.items()} == {i: v.tobytes() for i, v in views.items()}


@pytest.mark.parametrize("raw", [b"\x08", b"\x3a\xff\xff\xff\xff\x7f", b"\x3a\x02\x2a\x7f", b"\xff" * 40])
def test_a_file_that_is_broken_comes_back_whole(tmp_path: Path, raw: bytes) -> None:
    assert load_weights(open_view(tmp_path / "m.onnx", raw)) == (raw, {})


def test_every_cut_of_a_file_is_refused_or_whole(tmp_path: Path) -> None:
    raw = model_of(ARRAYS).SerializeToString()
    for end in range(1, len(raw), 2999):
        (tmp_path / "m.onnx").write_bytes(raw[:end])
        with pytest.raises(ModelFormatError):
            load_model(tmp_path / "m.onnx")


def test_large_weights_stay_in_the_file_until_they_are_used(tmp_path: Path) -> None:
    big = RNG.standard_normal((300, 1000)).astype(np.float32)
    small = ARRAYS["large"]
    assert small.nbytes < PAGED <= big.nbytes
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of({"big": big, "small": small}).SerializeToString())
    constants = load_model(path).graph.constants
    assert isinstance(constants.held("big"), LazyArray)
    np.testing.assert_array_equal(constants["big"], big)
    path.write_bytes(bytes(path.stat().st_size))
    np.testing.assert_array_equal(constants["small"], small)
    with pytest.raises(ModelFormatError, match=r"m.onnx' has changed since the session was opened"):
        _ = constants["big"]
