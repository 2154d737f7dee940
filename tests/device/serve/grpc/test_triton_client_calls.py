"""Triton's clients, with and without asyncio, to models that run on a device: the list of calls, and their metrics."""

from __future__ import annotations

import asyncio
import json
import queue
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as aio
from tritonclient.utils import InferenceServerException

import onnx
import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime
from opalite.serve.engine.inference_server import Server
from opalite.serve.engine.model_config import ServerSettings
from opalite.serve.grpc.grpc_server import GrpcFront, GrpcSettings
from opalite.serve.run_servers import serving
from opalite.serve.telemetry.prometheus_metrics import Metrics

from ....helpers.decoders import KINDS
from ....helpers.small_models import classifier, make_model, noise, port
from ....helpers.words import make_folder

CONFIG = """
platform: "onnxruntime_onnx" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 3, 13, 11 ] }
dynamic_batching { max_queue_delay_microseconds: 2000 priority_levels: 2
  default_queue_policy { allow_timeout_override: true max_queue_size: 64 } }
optimization { graph { level: 1 } }
"""


class Served(NamedTuple):
    address: str
    metrics: Metrics
    folder: Path
    device: str


@pytest.fixture(scope="module")
def served(rt: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("repository")
    for name in ("net/1", "net/3", "texts/1"):
        (folder / name).mkdir(parents=True)
    for version in (1, 3):
        onnx.save(classifier(("N", 3, 13, 11), classes=4 + version), folder / f"net/{version}/model.onnx")
    (folder / "net/config.pbtxt").write_text(CONFIG)
    nodes = [helper.make_node("Identity", ["t"], ["u"]), helper.make_node("Mul", ["x", "x"], ["y"])]
    inputs = [port("t", ["k"], TensorProto.STRING), port("x", ["rows", "columns"], TensorProto.INT64)]
    outputs = [port("u", ["k"], TensorProto.STRING), port("y", ["rows", "columns"], TensorProto.INT64)]
    onnx.save(make_model(nodes, inputs, outputs), folder / "texts/1/model.onnx")
    metrics = Metrics()
    settings = ServerSettings(repository=folder, devices=(rt.info.id,), models=writer(tmp_path_factory))
    with serving(lambda: Server(settings, metrics), [GrpcFront(GrpcSettings(port=0))], 20) as (address,):
        yield Served(address.removeprefix("grpc://"), metrics, folder, rt.info.id)


def writer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A language model of no sense, where the packages for texts are installed."""
    pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
    pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
    made = make_folder(tmp_path_factory.mktemp("writer"), {"model.onnx": KINDS[next(iter(KINDS))]()})
    return {"writer": made}


@pytest.fixture
def client(served: Served) -> Any:
    return triton.InferenceServerClient(served.address)


def given(name: str, array: np.ndarray[Any, Any], datatype: str) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def text(prompt: str) -> list[triton.InferInput]:
    return [given("text_input", np.array([prompt.encode()], object), "BYTES")]


def failure(call: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as e:
        call()
    return e.value.status().removeprefix("StatusCode."), e.value.message()


def test_what_is_served_is_told(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("net")
    assert client.is_model_ready("net", "3")
    assert not client.is_model_ready("net", "1")  # the policy serves the newest
    assert not client.is_model_ready("other")
    assert client.get_server_metadata().name == "opalite"
    metadata = client.get_model_metadata("net")
    assert (list(metadata.versions), metadata.platform) == (["3"], "onnx_opalite")
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [("x", "FP32", [-1, 3, 13, 11])]
    config = client.get_model_config("net").config
    assert (config.max_batch_size, list(config.input[0].dims)) == (8, [3, 13, 11])
    assert config.dynamic_batching.priority_levels == 2
    assert client.get_model_config("writer").config.model_transaction_policy.decoupled
    index = {(m.name, m.version): m.state for m in client.get_model_repository_index().models}
    assert index["net", "3"] == index["texts", "1"] == index["writer", "1"] == "READY"
    assert failure(lambda: client.get_model_metadata("other"))[0] == "NOT_FOUND"
    assert failure(lambda: client.get_model_config("net", "7"))[0] == "NOT_FOUND"


def test_tensors_raw_and_typed_in_batches_and_texts(served: Served, client: Any) -> None:
    x = noise(3, 3, 13, 11)
    with opalite.InferenceSession(served.folder / "net/3/model.onnx", device=served.device) as session:
        (wanted,) = session.run(None, {"x": x})
        name = session.get_outputs()[0].name
    raw = client.infer("net", [given("x", x, "FP32")], request_id="r", priority=1, timeout=5_000_000)
    np.testing.assert_allclose(raw.as_numpy(name), wanted, rtol=1e-4, atol=1e-6)
    assert raw.get_response().id == "r"
    request = triton.service_pb2.ModelInferRequest(model_name="net")
    request.inputs.add(name="x", datatype="FP32", shape=x.shape).contents.fp32_contents.extend(x.ravel())
    with grpc.insecure_channel(served.address) as channel:
        stub = triton.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        typed = triton.InferResult(stub.ModelInfer(request)).as_numpy(name)
    np.testing.assert_allclose(typed, wanted, rtol=1e-4, atol=1e-6)
    top = client.infer("net", [given("x", x, "FP32")], outputs=[triton.InferRequestedOutput(name, class_count=2)])
    found = [[int(t.split(b":")[1]) for t in row] for row in top.as_numpy(name)]
    assert found == np.argsort(-wanted, axis=1)[:, :2].tolist()
    texts = np.array([b"", b"\xc3\xa4", b"abc"], object)
    for numbers in (np.array([[2, -3]]), np.zeros((0, 4), np.int64)):
        both = client.infer("texts", [given("t", texts, "BYTES"), given("x", numbers, "INT64")])
        assert both.as_numpy("u").tolist() == texts.tolist()
        assert both.as_numpy("y").tolist() == (numbers * numbers).tolist()


def test_requests_beside_each_other_share_batches_and_are_counted(served: Served, client: Any) -> None:
    before = client.get_inference_statistics("net").model_stats[0]
    pictures = [noise(1, 3, 13, 11, seed=n) for n in range(16)]

    async def all_at_once() -> list[Any]:
        async with aio.InferenceServerClient(served.address) as several:
            assert await several.is_server_ready()
            calls = (several.infer("net", [given("x", p, "FP32")], request_id=str(n)) for n, p in enumerate(pictures))
            return await asyncio.gather(*calls)

    found = asyncio.run(all_at_once())
    assert [r.get_response().id for r in found] == [str(n) for n in range(16)]
    after = client.get_inference_statistics("net").model_stats[0]
    assert after.inference_count - before.inference_count == 16
    assert 2 <= after.execution_count - before.execution_count < 16
    text = served.metrics.text()[0].decode()
    assert re.search(r'opalite_requests_total\{model="net",outcome="ok",version="3"\} [1-9]', text)
    assert f'opalite_device_busy_seconds_total{{device="{served.device}"}}' in text
    assert 'opalite_workers{device="%s",model="net",version="3"} 1.0' % served.device in text  # noqa: UP031


def test_what_does_not_fit_is_refused_with_its_code(client: Any) -> None:
    code, said = failure(lambda: client.infer("net", [given("x", noise(1, 3, 13, 12), "FP32")]))
    assert (code, "[-1, 3, 13, 11]" in said) == ("INVALID_ARGUMENT", True)
    wide = given("x", noise(9, 3, 13, 11), "FP32")
    assert failure(lambda: client.infer("net", [wide]))[0] == "INVALID_ARGUMENT"
    assert failure(lambda: client.infer("net", [given("y", noise(1, 3, 13, 11), "FP32")]))[0] == "INVALID_ARGUMENT"
    assert failure(lambda: client.infer("net", [given("x", noise(1, 3, 13, 11).astype("f8"), "FP64")]))[0] == (
        "INVALID_ARGUMENT"
    )
    assert failure(lambda: client.infer("net", [], model_version="9"))[0] == "NOT_FOUND"


def test_models_are_unloaded_and_loaded_with_a_configuration(client: Any) -> None:
    client.unload_model("texts")
    assert not client.is_model_ready("texts")
    numbers = [given("t", np.array([b"a"], object), "BYTES"), given("x", np.array([[2]]), "INT64")]
    assert failure(lambda: client.infer("texts", numbers))[0] in ("NOT_FOUND", "UNAVAILABLE")
    client.load_model(
        "texts", config=json.dumps({"max_batch_size": 0, "parameters": {"memory": {"string_value": "normal"}}})
    )
    assert client.is_model_ready("texts")
    assert client.infer("texts", numbers).as_numpy("y").tolist() == [[4]]
    code, said = failure(lambda: client.load_model("texts", config='{"backend": "python"}'))
    assert (code, "'python' is not served here" in said) == ("INVALID_ARGUMENT", True)
    assert failure(lambda: client.load_model("other"))[0] == "NOT_FOUND"


def test_texts_come_in_pieces_and_end_with_a_word_of_it(served: Served, client: Any) -> None:
    options = {"max_tokens": 8, "ignore_end": True}
    whole = client.infer("writer", text("Once (5)"), parameters=options).as_numpy("text_output")[0]
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("writer", text("Once (5)"), parameters=options, enable_empty_final_response=True)
    pieces, final = [], False
    while not final:
        result, error = answers.get(timeout=30)
        assert error is None
        final = result.get_response().parameters["triton_final_response"].bool_param
        pieces.append(result.as_numpy("text_output")[0])
    assert len(pieces) > 2
    assert b"".join(pieces) == whole
    client.async_stream_infer("writer", text("On"), parameters={"max_tokens": "many"})
    assert "'max_tokens'" in str(answers.get(timeout=30)[1])
    client.async_stream_infer("writer", text("On and on"), parameters={"max_tokens": 500, "ignore_end": True})
    assert answers.get(timeout=30)[1] is None
    client.stop_stream(cancel_requests=True)
    again = client.infer("writer", text("Once (5)"), parameters=options)
    assert again.as_numpy("text_output")[0] == whole
    assert (
        failure(
            lambda: client.infer(
                "writer", text("x"), parameters={"max_tokens": 500, "ignore_end": True}, client_timeout=0.05
            )
        )[0]
        == "DEADLINE_EXCEEDED"
    )


def test_200_damaged_messages_leave_the_server_as_it_was(served: Served, client: Any) -> None:
    draw = random.Random(11)
    x = noise(1, 3, 13, 11)
    good = triton.service_pb2.ModelInferRequest(model_name="net", raw_input_contents=[x.tobytes()])
    good.inputs.add(name="x", datatype="FP32", shape=x.shape)
    whole, codes = good.SerializeToString(), set()
    with grpc.insecure_channel(served.address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(200):
            data = bytearray(whole)
            for _ in range(draw.randint(1, 4)):
                data[draw.randrange(60)] = draw.randrange(256)
            try:
                call(bytes(data[: draw.randint(20, len(data))]), timeout=20)
            except grpc.RpcError as e:
                codes.add(e.code().name)
    assert codes <= {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
    assert "INVALID_ARGUMENT" in codes
    assert client.infer("net", [given("x", x, "FP32")]).get_response().model_version == "3"
