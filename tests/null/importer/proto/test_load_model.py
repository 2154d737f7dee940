"""Loading: bytes, external data, metadata, functions, and sentences for every kind of broken file or graph.

Longer than 400 lines: a list of broken files and graphs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.external_data_helper import convert_model_to_external_data

import onnx
from onnx import TensorProto, helper, numpy_helper
from opalite.errors import ModelError, ModelFileError, ModelFormatError, ShapeError, UnsupportedOpError
from opalite.importer import load_model
from opalite.importer.walk import node_context

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime, parse

RNG = np.random.default_rng(3)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def small_model(weight: Any) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", weight.shape[0]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"], name="add")]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_a_model_is_a_path_bytes_or_a_message(tmp_path: Path) -> None:
    model = small_model(f32(4))
    onnx.save(model, tmp_path / "m.onnx")
    x = f32(2, 4)
    want = by_onnxruntime(model, {"x": x})
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), model.SerializeToString(), model):
        assert_same(NumpySession(source).run({"x": x}), want)


def test_descriptions_and_metadata() -> None:
    model = parse("""
        g (float[N, 3] x, int64 n, seq(float[2]) s, optional(float[1]) o) => (float[N, ?] y, seq(float[2]) t) {
            y = Neg(x)
            t = Identity(s)
        }
    """)
    model.producer_name, model.model_version, model.doc_string = "maker", 7, "a model"
    helper.set_model_props(model, {"labels": "a,b"})
    loaded = load_model(model)
    assert [(v.name, v.onnx_type, v.shape) for v in loaded.inputs] == [
        ("x", "tensor(float)", ("N", 3)),
        ("n", "tensor(int64)", ()),
        ("s", "seq(tensor(float))", None),
        ("o", "optional(tensor(float))", None),
    ]
    assert [(v.name, v.onnx_type, v.shape) for v in loaded.outputs] == [
        ("y", "tensor(float)", ("N", None)),
        ("t", "seq(tensor(float))", None),
    ]
    meta = loaded.meta
    assert (meta.producer_name, meta.version, meta.description, meta.graph_name) == ("maker", 7, "a model", "g")
    assert meta.custom_metadata_map == {"labels": "a,b"}
    assert loaded.opsets == {"": 18}


# External data


def save_external(folder: Path, weight: Any) -> Path:
    model = small_model(weight)
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def test_external_data_stays_what_it_was(tmp_path: Path) -> None:
    """A memory mapping would change with the file, and crash the process if the file is truncated."""
    weight = f32(64)
    loaded = load_model(save_external(tmp_path, weight))
    with (tmp_path / "weights.bin").open("r+b") as f:
        f.write(bytes(8))
        f.truncate(8)
    array = loaded.graph.constants["w"]
    np.testing.assert_array_equal(array, weight)
    assert not array.flags.writeable


def test_tensors_that_share_data_share_an_array(tmp_path: Path) -> None:
    path = save_external(tmp_path, f32(64))
    model = onnx.load(path, load_external_data=False)
    twin = model.graph.initializer.add()
    twin.CopyFrom(model.graph.initializer[0])
    twin.name = "twin"
    model.graph.output.add().CopyFrom(helper.make_tensor_value_info("twin", TensorProto.FLOAT, [64]))
    onnx.save(model, path)
    constants = load_model(path).graph.constants
    assert np.shares_memory(constants["twin"], constants["w"])


def test_tensors_that_share_data_in_parts_are_refused(tmp_path: Path) -> None:
    """A small file must not cause unlimited allocations."""
    path = save_external(tmp_path, f32(64))
    model = onnx.load(path, load_external_data=False)
    for i in range(1, 9):
        part = model.graph.initializer.add()
        part.CopyFrom(model.graph.initializer[0])
        part.name, part.dims[0] = f"part{i}", 64 - i
        del part.external_data[:]
        part.external_data.add(key="location", value="weights.bin")
    onnx.save(model, path)
    with pytest.raises(ModelFormatError, match=r"tensor 'part\d' and others before it are said to share most of"):
        load_model(path)


@pytest.mark.parametrize("location", ["x" * 5000, "a\0b", "x" * 300 + "/y"])
def test_names_that_no_data_file_can_have(tmp_path: Path, location: str) -> None:
    path = save_external(tmp_path, f32(64))
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    onnx.save(model, path)
    with pytest.raises(ModelFormatError, match=r"tensor 'w' points to '.{3,81}', which cannot be the name of a file"):
        load_model(path)


def test_a_link_out_of_the_folder_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path = save_external(tmp_path / "inner", f32(64))
    (tmp_path / "inner" / "weights.bin").rename(tmp_path / "secret")
    (tmp_path / "inner" / "weights.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFormatError, match="outside the model's folder"):
        load_model(path)
    (tmp_path / "inner" / "weights.bin").unlink()
    (tmp_path / "inner" / "weights.bin").symlink_to(tmp_path / "inner" / "weights.bin")
    with pytest.raises(ModelFormatError, match=r"cannot be the name of a file|does not exist"):
        load_model(path)


def test_model_and_data_may_be_links_to_one_folder(tmp_path: Path) -> None:
    """Downloads of model hubs are stored so: `snapshots/…` links into `blobs`."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    weight = f32(64)
    save_external(blobs, weight)
    for name in ("m.onnx", "weights.bin"):
        (blobs / name).rename(blobs / f"digest of {name}")
        (snapshot / name).symlink_to(f"../../blobs/digest of {name}")
    np.testing.assert_array_equal(load_model(snapshot / "m.onnx").graph.constants["w"], weight)
    (blobs / "digest of weights.bin").rename(tmp_path / "elsewhere")
    (blobs / "digest of weights.bin").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFormatError, match="outside the model's folder"):
        load_model(snapshot / "m.onnx")


def test_a_sparse_tensor_may_not_ask_for_any_amount_of_memory() -> None:
    model = small_model(f32(4))
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(f32(1), "huge"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.zeros(1, np.int64), "at"))
    sparse.dims.extend([1 << 40])
    with pytest.raises(ModelFormatError, match=r"sparse tensor 'huge' of shape \[1099511627776\] has 4398046511104"):
        load_model(model)


def test_missing_external_data_names_tensor_and_file(tmp_path: Path) -> None:
    path = save_external(tmp_path, f32(64))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(
        ModelFormatError, match=r"data of tensor 'w' should be in '.*weights.bin', which does not exist"
    ):
        load_model(path)


def test_short_external_data_says_how_many_bytes(tmp_path: Path) -> None:
    path = save_external(tmp_path, f32(64))
    (tmp_path / "weights.bin").write_bytes(b"\0" * 100)
    with pytest.raises(ModelFormatError, match=r"needs 256 bytes at offset 0 of 'weights.bin', which has 100 bytes"):
        load_model(path)


def test_external_data_without_a_folder(tmp_path: Path) -> None:
    path = save_external(tmp_path, f32(64))
    with pytest.raises(ModelFormatError, match="load it by its path"):
        load_model(path.read_bytes())
    assert load_model(path.read_bytes(), tmp_path).graph.constants["w"].shape == (64,)


def test_external_data_may_not_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 256)
    model = onnx.load(save_external(tmp_path / "inner", f32(64)), load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../secret"
    onnx.save(model, tmp_path / "inner" / "m.onnx")
    with pytest.raises(ModelFormatError, match="outside the model's folder"):
        load_model(tmp_path / "inner" / "m.onnx")


# Broken files


def test_folder_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="is a folder"):
        load_model(tmp_path)
    with pytest.raises(ModelFormatError, match="there is no file"):
        load_model(tmp_path / "absent.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelFormatError, match="is empty"):
        load_model(tmp_path / "empty.onnx")
    with pytest.raises(ModelFormatError, match="got int"):
        load_model(7)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_read_and_one_without_a_writer_is_no_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "m.onnx"
    os.mkfifo(pipe)
    with monkeypatch.context() as patch:
        patch.setattr("opalite.importer.formats._PIPE_S", 0.01)
        with pytest.raises(ModelFileError, match="is a pipe that nobody writes to"):
            load_model(pipe)
    raw = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }").SerializeToString()

    def write() -> None:
        with open(pipe, "wb", buffering=0) as file:  # waits for the reader
            file.write(raw[:10])
            time.sleep(0.05)
            file.write(raw[10:])

    writer = threading.Thread(target=write)
    writer.start()
    assert [n.op_type for n in load_model(pipe).graph.nodes] == ["Neg"]
    writer.join()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x1c\0\0\0TFL3", "is damaged or was cut off"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"no model at all, but text", "not a complete ONNX model|holds no ONNX graph"),
        (b"\x08\x08", "holds no ONNX graph"),
    ],
)
def test_other_formats_are_recognised(raw: bytes, said: str) -> None:
    with pytest.raises(ModelFormatError, match=said):
        load_model(raw)


def test_no_cut_of_a_file_crashes() -> None:
    raw = small_model(f32(16)).SerializeToString()
    for end in range(len(raw)):
        with contextlib.suppress(ModelError):
            load_model(raw[:end])


def test_initializer_with_missing_bytes() -> None:
    model = small_model(f32(16))
    model.graph.initializer[0].raw_data = b"\0" * 10
    with pytest.raises(ModelFormatError, match=r"tensor 'w' of type float and shape \[16\] cannot be read"):
        load_model(model)


def test_initializer_of_no_type_or_size() -> None:
    model = small_model(f32(16))
    model.graph.initializer[0].data_type = 77
    with pytest.raises(ModelFormatError, match="tensor 'w' cannot be read: element type number 77 is none"):
        load_model(model)
    model = small_model(f32(16))
    model.graph.initializer[0].dims[0] = -1
    with pytest.raises(ModelFormatError, match=r"shape \[-1\] cannot be read: sizes must not be negative"):
        load_model(model)


def test_a_name_that_no_file_has() -> None:
    with pytest.raises(ModelFormatError, match=r"'a\\x00b' cannot be the name of a file"):
        load_model("a\0b")


def test_a_bundle_is_no_model() -> None:
    with pytest.raises(ModelFormatError, match=r"a safetensors file or an \.opal bundle"):
        load_model(b"\x10" + bytes(7) + b'{"a": {}}' + bytes(99))


def test_versions() -> None:
    model = small_model(f32(4))
    model.ir_version = 999
    with pytest.raises(ModelFormatError, match="IR version 999"):
        load_model(model)
    model.ir_version = 8
    model.opset_import[0].version = 999
    with pytest.raises(UnsupportedOpError, match="uses opset 999"):
        load_model(model)


# Wrong graphs


def test_unknown_operators_and_domains() -> None:
    with pytest.raises(UnsupportedOpError, match=r"Conf node 'y'.* did you mean .*Conv"):
        load_model(parse("g (float[N] x) => (float[N] y) { y = Conf(x) }"))
    with pytest.raises(UnsupportedOpError, match=r"Thing node 'y' of domain 'com.acme'.*model-local function"):
        load_model(parse("g (float[N] x) => (float[N] y) { y = com.acme.Thing(x) }", more=', "com.acme": 1'))
    with pytest.raises(UnsupportedOpError, match="exists since opset 20, but the model imports opset 13"):
        load_model(parse("g (float[N] x) => (float[N] y) { y = AffineGrid(x, x) }", opset=13))


def test_operators_that_nothing_needs_are_not_looked_at() -> None:
    load_model(parse("g (float[N] x) => (float[N] y) { y = Neg(x) z = com.acme.Thing(x) }", more=', "com.acme": 1'))


def test_unknown_operators_are_found_inside_branches() -> None:
    with pytest.raises(UnsupportedOpError, match="Nope node 'a'"):
        load_model(
            parse("""
                g (float[N] x, bool c) => (float[N] y) {
                    y = If (c) <
                        then_branch = t () => (float[N] a) { a = Nope(x) },
                        else_branch = e () => (float[N] b) { b = Neg(x) }
                    >
                }
            """)
        )


def test_names_that_nothing_defines() -> None:
    with pytest.raises(ModelFormatError, match="Add node 'y' reads 'z', which no input, initializer or node defines"):
        load_model(parse("g (float[N] x) => (float[N] y) { y = Add(x, z) }"))
    with pytest.raises(ModelFormatError, match="the graph has the output 'z', which no"):
        load_model(parse("g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) }"))


def test_cycles_and_names_defined_twice() -> None:
    with pytest.raises(ModelFormatError, match=r"graph 'g' has a cycle: .* reads an output of"):
        load_model(parse("g (float[N] x) => (float[N] y) { a = Add(x, b) b = Neg(a) y = Neg(b) }"))
    with pytest.raises(
        ModelFormatError, match="Abs node 'y' defines 'y', which Neg node 'y' of graph 'g' defines already"
    ):
        load_model(parse("g (float[N] x) => (float[N] y) { y = Neg(x) y = Abs(x) }"))


def test_nodes_in_any_order_are_sorted() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Neg(b) b = Abs(a) a = Add(x, x) }")
    x = f32(3)
    assert_same(NumpySession(model).run({"x": x}), [-np.abs(x + x)])


def test_shape_errors_name_the_node_and_its_inputs() -> None:
    model = parse("g (float[N] x, float[M] z) => (float[K] y) { y = Add(x, z) }")
    with pytest.raises(ShapeError, match=r"(?s)do not broadcast.*importing Add node 'y' .*f32\[3\], f32\[4\]"):
        NumpySession(model).run({"x": f32(3), "z": f32(4)})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = Sub(b, b)", r"Sub node 'y' does not take bool for input 0 \(A\); it takes tensor\(bfloat16\)"),
        ("y = Add(x, n)", r"Add node 'y' mixes float32 and int64 \(input 1, B\): both must have one element type"),
        ("y = Concat <axis = 0> (x, n)", r"Concat node 'y' mixes float32 and int64"),
        (
            "y = Reshape(x, x)",
            r"Reshape node 'y' does not take float32 for input 1 \(shape\); it takes tensor\(int64\)",
        ),
    ],
)
def test_element_types_are_checked(body: str, said: str) -> None:
    model = parse(f"g (float[N] x, bool[N] b, int64[N] n) => (float[M] y) {{ {body} }}")
    feeds = {"x": f32(2), "b": np.zeros(2, bool), "n": np.zeros(2, np.int64)}
    with pytest.raises(ShapeError, match=said):
        NumpySession(model).run(feeds)


# Constants and functions


def test_constants_outputs_inputs_as_outputs_and_outputs_twice() -> None:
    model = parse("""
        g (float[N] x) => (float[N] x, float[2] k, float[N] y, float[N] z, float[1] d) {
            k = Constant <value = float[2] {1.0, 2.0}> ()
            e = Constant <value_float = 3.0> ()
            one = Constant <value_ints = [1]> ()
            d = Reshape(e, one)
            y = Neg(x)
            z = Identity(y)
        }
    """)
    x = f32(3)
    session = NumpySession(model)
    got = session.run({"x": x})
    assert_same(got, [x, np.asarray([1, 2], np.float32), -x, -x, np.asarray([3], np.float32)])
    (segment,) = session.imported
    assert len(segment.graph.outputs) == 1, "only what must be computed is an output of the graph"


def test_outputs_are_arrays_of_the_callers_own() -> None:
    session = NumpySession(
        parse("g (float[N] x) => (float[N] x, float[2] k) { k = Constant <value = float[2] {1.0, 2.0}> () }")
    )
    x = f32(3)
    for _ in range(2):
        same, constant = session.run({"x": x})
        assert constant.tolist() == [1, 2]
        assert not np.shares_memory(same, x)
        constant[:] = 7


def test_initializers_that_are_inputs_may_be_fed() -> None:
    model = small_model(f32(4))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4]))
    loaded = load_model(model)
    assert [v.name for v in loaded.inputs] == ["x"]
    assert [v.name for v in loaded.overridable_inputs] == ["w"]
    x, w = f32(2, 4), f32(4)
    session = NumpySession(model)
    assert_same(session.run({"x": x}), by_onnxruntime(model, {"x": x}))
    assert_same(session.run({"x": x, "w": w}), [x + w])
    assert_same(session.run({"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_initializers(flat: bool) -> None:
    model = small_model(f32(2, 3))
    values = numpy_helper.from_array(np.asarray([5, 7], np.float32), "w")
    indices = np.asarray([1, 5] if flat else [[0, 1], [1, 2]], np.int64)
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "w_indices"), [2, 3])
    )
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    x = f32(2, 3)
    assert_same(NumpySession(model).run({"x": x}), [x + np.asarray([[0, 5, 0], [0, 0, 7]], np.float32)])


FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
g (float[N] x) => (float[N] y, float[N] z) {
    y = local.twice <slope = 0.5> (x)
    z = local.twice(y)
}
<opset_import: ["" : 18, "local" : 1], domain: "local">
twice <slope: float = 0.25> (v) => (w) {
    a = local.leaky <alpha: float = @slope> (v)
    w = local.leaky <alpha: float = @slope> (a)
}
<opset_import: ["" : 16], domain: "local">
leaky <alpha> (v) => (w) {
    k = Constant <value_float: float = @alpha> ()
    zero = Constant <value = float {0.0}> ()
    below = Less(v, zero)
    small = Mul(v, k)
    w = Where(below, small, v)
}
"""


def test_functions_with_attributes_and_defaults() -> None:
    model = onnx.parser.parse_model(FUNCTIONS)
    x = f32(6)
    session = NumpySession(model)
    assert_same(session.run({"x": x}), by_onnxruntime(model, {"x": x}))
    assert session.segments == 1


def test_functions_that_call_themselves_are_refused() -> None:
    text = FUNCTIONS.replace("a = local.leaky", "a = local.twice")
    with pytest.raises(UnsupportedOpError, match="function 'twice' of domain 'local' calls itself"):
        load_model(onnx.parser.parse_model(text))


def test_schema_functions_are_expanded_when_nothing_imports_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    node_context.load_handlers()
    monkeypatch.delitem(node_context._HANDLERS, ("", "ThresholdedRelu"))
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { y = ThresholdedRelu <alpha = 0.25> (x) }")
    x = f32(4, 3)
    session = NumpySession(model)
    assert_same(session.run({"x": x}), by_onnxruntime(model, {"x": x}))
    (segment,) = session.imported
    assert not any(n.op.name == "HostOp" for n in segment.graph.nodes)
