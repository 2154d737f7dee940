"""The calls of `tritonclient.http` that a server has to answer as Triton does.

The server has the models that `make_models` writes, or serving.Double's of the same names: `sums`, `half`, `counts`,
`flags`, and where `texts` are asked for `shout` and `writer`.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from onnx import TensorProto, helper

from .triton_both_calls import WIDE

Client = triton.InferenceServerClient
A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = A[::-1].copy() * 0.5


def make_models(folder: Path) -> Path:
    """A repository FOLDER/NAME/1/model.onnx."""
    info, node = helper.make_tensor_value_info, helper.make_node
    single, half, whole, truth = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
    models = {
        "sums": (
            [info("a", single, ["N", 4]), info("b", single, ["N", 4])],
            [info("sum", single, ["N", 4]), info("difference", single, ["N", 4])],
            [node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])],
        ),
        "half": ([info("x", half, ["N"])], [info("y", half, ["N"])], [node("Add", ["x", "x"], ["y"])]),
        "counts": ([info("x", whole, ["N"])], [info("y", whole, ["N"])], [node("Add", ["x", "one"], ["y"])]),
        "flags": ([info("x", truth, ["N"])], [info("y", truth, ["N"])], [node("Not", ["x"], ["y"])]),
        "echo": (
            [info("text", TensorProto.STRING, ["N"])],
            [info("same", TensorProto.STRING, ["N"])],
            [node("Identity", ["text"], ["same"])],
        ),
        "types": _types(),
    }
    for name, (inputs, outputs, nodes) in models.items():
        constants = [helper.make_tensor("one", whole, [1], [1])] if name == "counts" else []
        graph = helper.make_graph(nodes, name, inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        place = folder / name / "1" / "model.onnx"
        place.parent.mkdir(parents=True)
        place.write_bytes(model.SerializeToString())
    return folder


def _types() -> tuple[list[Any], list[Any], list[Any]]:
    """Identity of every datatype, and inputs without a batch."""
    info, node, single = helper.make_tensor_value_info, helper.make_node, TensorProto.FLOAT
    onnx_types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for name, dtype in WIDE.items()}
    inputs = [info(f"x_{name}", kind, ["rows", "columns"]) for name, kind in onnx_types.items()]
    outputs = [info(f"y_{name}", kind, ["rows", "columns"]) for name, kind in onnx_types.items()]
    nodes = [node("Identity", [f"x_{name}"], [f"y_{name}"]) for name in onnx_types]
    nodes += [node("Add", ["scalar", "scalar"], ["double"]), node("Mul", ["fixed", "fixed"], ["square"])]
    inputs += [info("scalar", single, []), info("fixed", single, [4])]
    return inputs, [*outputs, info("double", single, []), info("square", single, [4])], nodes


def given(name: str, array: np.ndarray, datatype: str = "", binary: bool = True) -> triton.InferInput:
    types = {"float32": "FP32", "float16": "FP16", "int64": "INT64", "bool": "BOOL", "object": "BYTES"}
    made = triton.InferInput(name, list(array.shape), datatype or types[array.dtype.name])
    return made.set_data_from_numpy(array, binary_data=binary)


def sums(
    client: Client, a: np.ndarray = A, b: np.ndarray = B, binary: tuple[bool, bool] = (True, True), **how: Any
) -> Any:
    inputs = [given("a", a, binary=binary[0]), given("b", b, binary=binary[1])]
    result = client.infer("sums", inputs, **how)
    np.testing.assert_allclose(result.as_numpy("sum"), a + b)
    return result


def fails(call: Callable[[], Any], status: str, words: str = "") -> None:
    with pytest.raises(InferenceServerException) as e:
        call()
    assert (e.value.status(), words in e.value.message()) == (status, True), e.value


def is_live(c: Client) -> None:
    assert c.is_server_live()


def is_ready(c: Client) -> None:
    assert c.is_server_ready()


def model_is_ready(c: Client) -> None:
    assert c.is_model_ready("sums")
    assert not c.is_model_ready("nothing")


def version_is_ready(c: Client) -> None:
    assert c.is_model_ready("sums", "1")
    assert not c.is_model_ready("sums", "7")


def server_metadata(c: Client) -> None:
    assert set(c.get_server_metadata()) == {"name", "version", "extensions"}


def model_metadata(c: Client) -> None:
    told = c.get_model_metadata("sums")
    assert told["versions"] == ["1"]
    assert told["inputs"] == [{"name": n, "datatype": "FP32", "shape": [-1, 4]} for n in "ab"]
    assert [o["name"] for o in told["outputs"]] == ["sum", "difference"]


def version_metadata(c: Client) -> None:
    assert c.get_model_metadata("sums", "1") == c.get_model_metadata("sums")
    fails(lambda: c.get_model_metadata("sums", "7"), "404")


def model_config(c: Client) -> None:
    assert c.get_model_config("sums")["max_batch_size"] > 0
    assert c.get_model_config("sums", "1")["name"] == "sums"


def repository_index(c: Client) -> None:
    states = {e["name"]: e["state"] for e in c.get_model_repository_index()}
    assert states["sums"] == states["half"] == "READY"


def statistics_of_a_model(c: Client) -> None:
    (one,) = c.get_inference_statistics("sums")["model_stats"]
    assert (one["name"], one["version"]) == ("sums", "1")
    assert one["inference_stats"]["success"]["count"] > 0


def statistics_of_all(c: Client) -> None:
    assert len(c.get_inference_statistics()["model_stats"]) >= 4


def infer_binary(c: Client) -> None:
    np.testing.assert_allclose(sums(c).as_numpy("difference"), A - B)


def infer_json(c: Client) -> None:
    sums(c, binary=(False, False), outputs=[triton.InferRequestedOutput("sum", binary_data=False)])


def infer_mixed(c: Client) -> None:
    outputs = [triton.InferRequestedOutput("difference", binary_data=False), triton.InferRequestedOutput("sum")]
    sums(c, binary=(False, True), outputs=outputs)
    sums(c, binary=(True, False), outputs=outputs)


def infer_one_output(c: Client) -> None:
    result = sums(c, outputs=[triton.InferRequestedOutput("sum")])
    assert result.as_numpy("difference") is None


def infer_batches(c: Client) -> None:
    for size in (1, 3, 4):
        sums(c, np.full((size, 4), 2, np.float32), np.full((size, 4), size, np.float32))


def infer_a_version(c: Client) -> None:
    assert sums(c, model_version="1").get_response()["model_version"] == "1"
    fails(lambda: sums(c, model_version="7"), "404")


def infer_with_an_id(c: Client) -> None:
    assert sums(c, request_id="own").get_response()["id"] == "own"


def infer_with_parameters(c: Client) -> None:
    sums(c, timeout=20_000_000, parameters={"note": "x", "share": 0.5, "flag": True})


def request_gzip(c: Client) -> None:
    sums(c, request_compression_algorithm="gzip")


def request_deflate(c: Client) -> None:
    sums(c, request_compression_algorithm="deflate")


def answer_compressed(c: Client) -> None:
    large = np.ones((4, 4), np.float32)
    for way in ("gzip", "deflate"):
        sums(c, large, large, response_compression_algorithm=way)


def infer_classes(c: Client) -> None:
    inputs = [given("a", A), given("b", B)]
    result = c.infer("sums", inputs, outputs=[triton.InferRequestedOutput("sum", class_count=2)])
    order = np.argsort(-(A + B), axis=1, kind="stable")[:, :2]
    expected = [[f"{v:f}:{i}".encode() for v, i in zip((A + B)[r, order[r]], order[r], strict=True)] for r in range(2)]
    assert result.as_numpy("sum").tolist() == expected


def infer_half(c: Client) -> None:
    x = np.array([1.5, -3], np.float16)
    np.testing.assert_array_equal(c.infer("half", [given("x", x)]).as_numpy("y"), x * 2)


def infer_whole_numbers(c: Client) -> None:
    x = np.array([1 << 40, -5], np.int64)
    for binary in (True, False):
        np.testing.assert_array_equal(c.infer("counts", [given("x", x, binary=binary)]).as_numpy("y"), x + 1)


def infer_truths(c: Client) -> None:
    x = np.array([True, False, True])
    for binary in (True, False):
        np.testing.assert_array_equal(c.infer("flags", [given("x", x, binary=binary)]).as_numpy("y"), ~x)


def infer_async(c: Client) -> None:
    waiting = [c.async_infer("sums", [given("a", A * i), given("b", B)]) for i in range(8)]
    for i, one in enumerate(waiting):
        np.testing.assert_allclose(one.get_result().as_numpy("sum"), A * i + B)


def infer_by_asyncio(c: Client) -> None:
    async def run() -> None:
        async with triton_aio.InferenceServerClient(f"{c._parsed_url.host}:{c._parsed_url.port}") as client:
            assert await client.is_server_ready()
            some = [client.infer("sums", [given("a", A), given("b", B)]) for _ in range(4)]
            for result in await asyncio.gather(*some):
                np.testing.assert_allclose(result.as_numpy("sum"), A + B)

    asyncio.run(run())


def wrong_model(c: Client) -> None:
    fails(lambda: c.infer("nothing", [given("a", A)]), "404", "nothing")


def wrong_input(c: Client) -> None:
    fails(lambda: c.infer("sums", [given("a", A), given("c", B)]), "400")


def missing_input(c: Client) -> None:
    fails(lambda: c.infer("sums", [given("a", A)]), "400", "b")


def wrong_output(c: Client) -> None:
    outputs = [triton.InferRequestedOutput("product")]
    fails(lambda: c.infer("sums", [given("a", A), given("b", B)], outputs=outputs), "400")


def wrong_type(c: Client) -> None:
    x = np.zeros((2, 4), np.int64)
    fails(lambda: c.infer("sums", [given("a", x), given("b", B)]), "400", "FP32")


def wrong_shape(c: Client) -> None:
    x = np.zeros((2, 5), np.float32)
    fails(lambda: c.infer("sums", [given("a", x), given("b", x)]), "400", "4")


def unload_and_load(c: Client) -> None:
    c.unload_model("counts")
    assert not c.is_model_ready("counts")
    with pytest.raises(InferenceServerException) as e:
        c.infer("counts", [given("x", np.array([1], np.int64))])
    assert e.value.status() in ("404", "503"), "503 while its workers end"
    assert {e["name"]: e["state"] for e in c.get_model_repository_index()}["counts"] in ("UNAVAILABLE", "UNLOADING")
    c.load_model("counts")
    infer_whole_numbers(c)


def load_with_a_configuration(c: Client) -> None:
    c.load_model("half", config=json.dumps({"name": "half", "max_batch_size": 0}))
    infer_half(c)
    assert not c.get_model_config("half").get("max_batch_size")
    fails(lambda: c.load_model("nothing"), "404")


def files_are_refused(c: Client) -> None:
    fails(lambda: c.load_model("sums", config="{}", files={"file:1/model.onnx": b"x"}), "501", "repository")


def texts(c: Client) -> None:
    x = np.array([["grün".encode(), b"b\xffc\0"]], object)
    assert c.infer("shout", [given("text", x)]).as_numpy("text").tolist() == [["GRüN".encode(), b"B\xffC\0"]]
    x = np.array([["one"]], object)
    assert c.infer("shout", [given("text", x, binary=False)]).as_numpy("text").tolist() == [[b"ONE"]]


def generate(c: Client) -> None:
    told = post(c, "generate", {"text_input": "And God said,", "parameters": {"max_tokens": 3}})
    assert json.loads(told)["text_output"]


def generate_by_events(c: Client) -> None:
    told = post(c, "generate_stream", {"text_input": "And God said,", "max_tokens": 3, "id": "s"})
    events = [json.loads(e.removeprefix(b"data: ")) for e in told.strip().split(b"\n\n")]
    assert len(events) >= 3
    assert all(e["model_name"] == "writer" and "text_output" in e for e in events)


def post(c: Client, call: str, body: Any) -> bytes:
    """tritonclient has no call for the generate extension."""
    plain = http.client.HTTPConnection(c._parsed_url.host, c._parsed_url.port, timeout=60)
    plain.request("POST", f"/v2/models/writer/{call}", json.dumps(body))
    answer = plain.getresponse()
    told = answer.read()
    plain.close()
    assert answer.status == 200, told
    return told


CALLS: Sequence[Callable[[Client], None]] = (
    is_live, is_ready, model_is_ready, version_is_ready, server_metadata, model_metadata, version_metadata,
    model_config, repository_index, infer_binary, infer_json, infer_mixed, infer_one_output, infer_batches,
    infer_a_version, infer_with_an_id, infer_with_parameters, request_gzip, request_deflate,
    answer_compressed, infer_classes, infer_half, infer_whole_numbers, infer_truths, infer_async,
    infer_by_asyncio, statistics_of_a_model, statistics_of_all, wrong_model, wrong_input, missing_input,
    wrong_output, wrong_type, wrong_shape, unload_and_load, load_with_a_configuration,
    files_are_refused,
)  # fmt: skip
OF_TEXTS: Sequence[Callable[[Client], None]] = (texts, generate, generate_by_events)
