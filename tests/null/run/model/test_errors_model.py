"""What a faulty model, file or setting is told: which node or file, what was expected, what came, what to do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx import TensorProto, helper, numpy_helper
from opalite import knobs
from opalite.errors import (
    DeviceMemoryError,
    InputError,
    ModelError,
    ModelFormatError,
    OpaliteError,
    ShapeError,
    UnsupportedOpError,
)
from opalite.importer import ImportRun, load_model
from opalite.importer.proto.decode import load_tensor_file
from opalite.ir.device.device_info import DeviceInfo
from opalite.ir.dtype import DType
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.tensor_type import TensorType
from opalite.layout.assign_precision import set_precision
from opalite.plan.memory.arena_planner import STRATEGIES
from opalite.plan.memory.memory_limits import check_sizes, size_text
from opalite.run.api.values.host_memory_errors import host_memory
from opalite.tune.tuning_levels import Level

from ....helpers.graphs import GraphMaker
from ....helpers.numpy_session import NumpySession
from ....helpers.small_models import classifier, make_model, noise, one_node, port

IMAGE = port("x", [1, 3, 8, 8])
MATRIX = port("x", [2, 3])


def conv(filters: tuple[int, ...], *rest: str, **attrs: Any) -> Any:
    """A convolution of IMAGE; `rest` may name the bias b of 7 elements."""
    constants = {"w": floats(*filters), **({"b": floats(7)} if rest else {})}
    return one_node("Conv", ["x", "w", *rest], [IMAGE], constants, **attrs)


def top_k(k: int) -> Any:
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], name="culprit")
    return make_model([node], [MATRIX], [port("y", None)], {"k": ints(k)})


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


FAULTS = {
    # inputs that do not fit together
    "conv channels": (
        conv((4, 2, 3, 3)),
        "expect 2 input channels.* has 3",
    ),
    "conv rank": (conv((4, 3, 3)), "ranks must be equal"),
    "conv window": (conv((4, 3, 9, 9)), "smaller than the filter"),
    "conv bias": (
        conv((4, 3, 3, 3), "b"),
        r"bias must be f32\[4\], got f32\[7\]",
    ),
    "matmul": (one_node("MatMul", ["x", "w"], [MATRIX], {"w": floats(4, 5)}), "a has 3 columns but b has 4 rows"),
    "gemm": (one_node("Gemm", ["x", "w"], [MATRIX], {"w": floats(2, 5)}), "a has 3 columns but b has 2 rows"),
    "add": (one_node("Add", ["x", "w"], [MATRIX], {"w": floats(4)}), r"\(2, 3\), \(4,\) do not broadcast"),
    "concat": (one_node("Concat", ["x", "w"], [MATRIX], {"w": floats(2, 4)}, axis=0), "does not fit .* off axis 0"),
    "pool window": (one_node("MaxPool", ["x"], [IMAGE], {}, kernel_shape=[19, 19]), "smaller than the window"),
    "batch norm": (
        one_node("BatchNormalization", ["x", "w", "w", "w", "w"], [IMAGE], {"w": floats(9)}),
        "do not broadcast together",
    ),
    "lstm": (
        one_node("LSTM", ["x", "w", "w"], [MATRIX], {"w": floats(1, 2, 3)}),
        r"must be \[steps, batch, inputs\]",
    ),
    # values that no shape can have
    "reshape": (one_node("Reshape", ["x", "s"], [MATRIX], {"s": ints(4, 2)}), r"with 6 elements to \(4, 2\) with 8"),
    "reshape twice open": (one_node("Reshape", ["x", "s"], [MATRIX], {"s": ints(-1, -1)}), "two dimensions open"),
    "tile": (one_node("Tile", ["x", "s"], [MATRIX], {"s": ints(-1, 2)}), "repeats .* must not be negative"),
    "constant of shape": (one_node("ConstantOfShape", ["s"], [], {"s": ints(-5)}), r"shape \[-5\].*not be negative"),
    "one-hot": (
        one_node("OneHot", ["i", "d", "v"], [port("i", [2], TensorProto.INT64)], {"d": ints(-3), "v": floats(2)}),
        "depth -3; it must not be negative",
    ),
    "resize": (one_node("Resize", ["x", "", "s"], [MATRIX], {"s": -floats(2)}), "scales must be positive"),
    "top-k": (top_k(9), "top 9 of axis 1"),
    "range": (
        one_node("Range", ["a", "b", "c"], [], {"a": np.int64(0), "b": np.int64(5), "c": np.int64(0)}),
        "delta 0",
    ),
    # attributes
    "strides": (
        conv((4, 3, 3, 3), strides=[0, 1]),
        "strides must be positive",
    ),
    "pads": (conv((4, 3, 3, 3), pads=[1]), r"pads \(1,\), expected 4"),
    "group": (
        conv((4, 3, 3, 3), group=0),
        "group must be positive, got 0",
    ),
    "axis": (one_node("Softmax", ["x"], [MATRIX], {}, axis=5), r"axis 5 is outside \[-2, 1\]"),
    "perm": (one_node("Transpose", ["x"], [MATRIX], {}, perm=[0, 0]), r"perm \(0, 0\), which is not a permutation"),
    "blocks": (one_node("DepthToSpace", ["x"], [IMAGE], {}, blocksize=0), "blocksize of 1 or more, got 0"),
    "no axis": (one_node("Concat", ["x", "x"], [MATRIX], {}), "lacks the attribute 'axis', which Concat must have"),
    "misspelt": (
        one_node("MaxPool", ["x"], [IMAGE], {}, kernel_shape=[2, 2], stride=[2, 2]),
        "has the attribute 'stride'; MaxPool knows .*strides",
    ),
    "fraction": (
        one_node("Softmax", ["x"], [MATRIX], {}, axis=1.5),
        "attribute 'axis' of type FLOAT; Softmax expects INT",
    ),
    "too many outputs": (
        make_model(
            [helper.make_node("Relu", ["x"], ["y", "z"], name="culprit")], [MATRIX], [port("y", None), port("z", None)]
        ),
        "has 2 outputs; Relu gives up to 1",
    ),
    "index": (one_node("Gather", ["x", "i"], [MATRIX], {"i": ints(0, 3)}, axis=1), "index 3 for axis 1.*-3 to 2"),
    "index of elements": (
        one_node("GatherElements", ["x", "i"], [MATRIX], {"i": ints(-3, 0, 0).reshape(1, 3)}),
        "index -3 for axis 0.*-2 to 1",
    ),
    "index vector": (
        one_node("ScatterND", ["x", "i", "u"], [MATRIX], {"i": ints(1, 2, 1, 3).reshape(2, 2), "u": floats(2)}),
        r"index 3 for axis 1 of f32\[2,3\]",
    ),
    "numbers": (
        one_node("Range", ["a", "b", "c"], [], {"a": np.float32(0), "b": np.float32(1e12), "c": np.float32(1)}),
        "from 0.0 to .* by 1.0, which is too many numbers",
    ),
    "attribute type": (one_node("MaxPool", ["x"], [IMAGE], {}, kernel_shape="ab"), "culprit"),
    # counts and element types of inputs
    "too many inputs": (one_node("Relu", ["x", "x"], [MATRIX], {}), "has 2 inputs; Relu takes up to 1"),
    "too few inputs": (one_node("Add", ["x"], [MATRIX], {}), "needs input 1"),
    "mixed types": (one_node("Add", ["x", "w"], [MATRIX], {"w": ints(1)}), "mixes float32 and int64.*put a Cast"),
    "wrong type": (
        one_node("Where", ["x", "x", "x"], [MATRIX], {}),
        r"not take float32 for input 0 \(condition\)",
    ),
    "cast": (one_node("Cast", ["x"], [MATRIX], {}, to=999), "element type number 999"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_node_is_named(fault: str) -> None:
    model, said = FAULTS[fault]
    session = NumpySession(model.SerializeToString())
    feeds = {v.name: np.zeros(v.shape, v.dtype.np) for v in session.model.inputs}
    with pytest.raises(ModelError, match=f"(?s){said}") as caught:
        session.run(feeds)
    assert "'culprit'" in str(caught.value)
    assert f"while importing {model.graph.node[0].op_type} node 'culprit' (opset 18) with inputs" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "domain", "said"),
    [
        ("Rellu", "", "there is no such operator in 'ai.onnx'; did you mean .*Relu"),
        ("Foo", "my.domain", "nothing here knows the domain 'my.domain'.*opalite kernel new.*without it"),
        ("Relu", "my.domain", "nothing here knows the domain 'my.domain'"),
        ("Gelu", "", "exists since opset 20, but the model imports opset 18.*convert the model"),
    ],
)
def test_unknown_operators_are_named(op: str, domain: str, said: str) -> None:
    node = helper.make_node(op, ["x"], ["y"], name="culprit", domain=domain)
    model = make_model([node], [MATRIX], [port("y", None)], domains=[domain] if domain else [])
    with pytest.raises(UnsupportedOpError, match=f"(?s)node 'culprit'.*{said}"):
        load_model(model.SerializeToString())


def test_a_missing_branch_is_told_whichever_is_taken() -> None:
    branch = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "b", [], [port("b", None)])
    model = one_node("If", ["c"], [MATRIX], {"c": np.bool_(True)}, then_branch=branch)
    session = NumpySession(model.SerializeToString())
    with pytest.raises(ShapeError, match="If node 'culprit' lacks its graph attribute 'else_branch'"):
        session.run({"x": floats(2, 3)})


def test_damage_never_goes_further_than_a_sentence() -> None:
    """Any flipped bit of the graph: loading and importing raise OpaliteError or nothing."""
    raw = classifier((1, 3, 8, 8), channels=1, classes=2).SerializeToString()
    rng = random.Random(1)
    seen = set()
    for _ in range(400):
        flipped = bytearray(raw)
        flipped[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        try:
            model = load_model(bytes(flipped))
            feeds = {v.name: TensorType(DType.FLOAT32, (1, 3, 8, 8)) for v in model.inputs}
            ImportRun(model.importer, feeds, lambda *_: [])
            seen.add("imported")
        except OpaliteError as e:
            seen.add(type(e).__name__)
    assert {"imported", "ModelFormatError", "ShapeError", "UnsupportedOpError"} <= seen


# Tensors in files


def test_a_tensor_file_is_an_array(tmp_path: Path) -> None:
    for array in (noise(2, 3), ints(1, 2), np.array(["a", "b"], object), np.zeros((0, 3), np.float16)):
        path = tmp_path / "t.pb"
        path.write_bytes(numpy_helper.from_array(array, "t").SerializeToString())
        np.testing.assert_array_equal(load_tensor_file(path), array)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "holds no tensor: it is empty"),
        (b"hello", "is not a complete TensorProto"),
        (
            numpy_helper.from_array(noise(4), "t").SerializeToString()[:-3],
            "is not a complete TensorProto.*truncated",
        ),
        (None, "t.pb' cannot be read: No such file"),
    ],
    ids=["empty", "text", "cut", "missing"],
)
def test_a_file_that_is_no_tensor(tmp_path: Path, raw: bytes | None, said: str) -> None:
    path = tmp_path / "t.pb"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(ModelFormatError, match=said):
        load_tensor_file(path)


# Sizes


def test_a_tensor_beyond_all_memory_is_named_with_its_size() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 1)
    graph = g.done(g.map("big", "neg", g.add("spread", "Elementwise", x, expr=_same(), shape=(1 << 20, 1 << 20))))
    device = DeviceInfo(name="small", global_mem=1 << 30)
    with pytest.raises(DeviceMemoryError, match=r"'spread'.*1048576, 1048576\] takes 4.0 TiB, but small has 1.0 GiB"):
        check_sizes(graph, device)
    set_precision(graph, PrecisionPolicy(Precision.FP16))
    with pytest.raises(DeviceMemoryError, match=r"takes 2.0 TiB.*smaller batch or input, or another device"):
        check_sizes(graph, device)


def _same() -> Any:
    from opalite.expr.trace_function import trace

    return trace(lambda v: v, DType.FLOAT32)


def test_an_input_beyond_all_memory_is_named() -> None:
    g = GraphMaker()
    graph = g.done(g.map("y", "neg", g.input("picture", 1 << 20, 1 << 12)))
    with pytest.raises(DeviceMemoryError, match=r"tensor 'picture': f32\[1048576, 4096\] takes 16.0 GiB"):
        check_sizes(graph, DeviceInfo(global_mem=1 << 33))


def test_sizes_read_as_people_write_them() -> None:
    assert [size_text(n) for n in (0, 512, 2048, 5 << 20, 3 << 39, 1 << 2000)] == [
        "0 bytes",
        "512 bytes",
        "2.0 KiB",
        "5.0 MiB",
        "1.5 TiB",
        "2^2000 bytes",
    ]


def test_a_host_without_memory_is_a_sentence() -> None:
    said = r"host ran out of memory \(4 TiB\) running it; use a smaller batch"
    with pytest.raises(DeviceMemoryError, match=said), host_memory("running it"):
        raise MemoryError("4 TiB")


# Settings


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OPALITE_PRECISION", "fp99", "expected fp32, fp16, fp16_fast, int8 or auto"),
        ("OPALITE_MEMORY", "disk", "expected auto, buffer, image, low or normal"),
        ("OPALITE_TUNE", "hard", "expected none, fast, normal, wide or exhaustive"),
        ("OPALITE_PLANNER", "worst", "expected best, naive, by_size"),
        ("OPALITE_CHECK", "maybe", "expected 1 or 0"),
        ("OPALITE_CACHE", "2", "expected 1 or 0"),
        ("OPALITE_DEBUG", "loud", "expected a whole number"),
        ("OPALITE_STOP_AFTER", "-1", "expected 0 or more"),
        ("OPALITE_CACHE_MB", "-1", "expected 0 or more"),
        ("OPALITE_BUILD_THREADS", "0", "expected 1 or more"),
        ("OPALITE_FLUSH", "1.5", "expected a whole number"),
    ],
)
def test_a_setting_that_does_not_parse(monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"{name}='{value}' is not valid: {said}") as caught:
        knobs.get(name)
    meaning = next(k.help for k in knobs.all_knobs() if k.name == name)
    assert str(caught.value).endswith(meaning)


def test_settings_take_any_case_and_empty_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PRECISION", "FP16")
    assert knobs.get("OPALITE_PRECISION") == "fp16"
    monkeypatch.setenv("OPALITE_PRECISION", "")
    assert knobs.get("OPALITE_PRECISION") == "fp32"
    monkeypatch.setenv("OPALITE_CHECK", "Yes")
    assert knobs.get("OPALITE_CHECK") is True


def test_words_of_settings_are_those_of_the_code() -> None:
    assert set(knobs.PLANNERS) == {"best", *STRATEGIES}
    assert tuple(level.name.lower() for level in Level) == knobs.LEVELS


def test_every_error_says_what_it_was_in() -> None:
    error = ShapeError("a").add_context("while doing b")
    assert str(error) == "a\n  while doing b"
    assert error.args == (error.message,)
