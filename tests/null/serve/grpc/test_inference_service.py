"""The calls through Triton's client, before a double of the engine."""

from __future__ import annotations

import json
import random
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from ....helpers.serving import MODELS, Double
from ....helpers.triton_both_calls import CALLS, Call


@pytest.fixture
def client(served: tuple[Double, str]) -> Any:
    return triton.InferenceServerClient(served[1])


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_call_of_both_protocols(client: Any, call: Call) -> None:
    call(triton, client)


def given(name: str, array: np.ndarray[Any, Any], datatype: str) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def two(rows: int = 2) -> list[triton.InferInput]:
    a = np.arange(rows * 4, dtype="f4").reshape(rows, 4)
    return [given("a", a, "FP32"), given("b", a * 10, "FP32")]


def failure(call: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as e:
        call()
    return e.value.status(), e.value.message()


def test_server_and_models_are_told(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("sums")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata().version
    metadata = client.get_model_metadata("sums")
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [
        ("a", "FP32", [-1, 4]),
        ("b", "FP32", [-1, 4]),
    ]
    assert client.get_model_config("sums").config.max_batch_size == 4
    assert client.get_model_config("sums", as_json=True)["config"]["name"] == "sums"
    stats = client.get_inference_statistics("sums").model_stats
    assert (stats[0].inference_stats.success.ns, stats[0].batch_stats[0].batch_size) == (3000, 2)
    assert len(client.get_inference_statistics().model_stats) == len(MODELS)


def test_inference_of_arrays_and_texts(client: Any) -> None:
    result = client.infer("sums", two(), outputs=[triton.InferRequestedOutput("difference")], request_id="7")
    assert result.as_numpy("difference").tolist() == (np.arange(8).reshape(2, 4) * -9).tolist()
    assert result.as_numpy("sum") is None
    assert result.get_response().id == "7"
    texts = np.array([[b"ab", "\u00e9".encode()]], object)
    assert client.infer("shout", [given("text", texts, "BYTES")]).as_numpy("text").tolist() == [[b"AB", b"\xc3\xa9"]]
    half = client.infer("half", [given("x", np.array([1.5, 2], np.float16), "FP16")]).as_numpy("y")
    assert half.dtype == np.float16
    assert half.tolist() == [3, 4]
    classes = client.infer("sums", two(), outputs=[triton.InferRequestedOutput("sum", class_count=1)])
    assert classes.as_numpy("sum").tolist() == [[b"33.000000:3"], [b"77.000000:3"]]


def test_parameters_deadline_and_trace_reach_the_engine(served: tuple[Double, str], client: Any) -> None:
    parent = {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01", "other": "x"}
    client.infer("sums", two(), priority=2, timeout=700, parameters={"own": 1}, client_timeout=9, headers=parent)
    request = served[0].requests[-1]
    assert (request.priority, request.timeout_s) == (2, 0.0007)
    assert request.trace == {"traceparent": parent["traceparent"]}
    assert request.parameters["own"] == 1
    client.infer("sums", two(), client_timeout=9)
    assert 8 < served[0].requests[-1].timeout_s < 9.1  # the client adds a little
    client.infer("sums", two(), timeout=60_000_000, client_timeout=9)
    assert 8 < served[0].requests[-1].timeout_s < 9.1  # the client adds a little
    client.infer("sums", two())
    assert served[0].requests[-1].timeout_s == 0


def test_failures_have_the_protocols_codes(client: Any) -> None:
    assert failure(lambda: client.infer("nothing", two()))[0] == "StatusCode.NOT_FOUND"
    assert failure(lambda: client.get_model_metadata("sums", "9"))[0] == "StatusCode.NOT_FOUND"
    assert failure(lambda: client.infer("sums", two()[:1])) == (
        "StatusCode.INVALID_ARGUMENT",
        "input 'b' is FP32 of shape [-1, 4]",
    )
    wide = given("x", np.zeros(70_000, np.int64), "INT64")
    assert failure(lambda: client.infer("counts", [wide]))[0] == "StatusCode.RESOURCE_EXHAUSTED"
    code, said = failure(lambda: client.infer("fails", [given("x", np.ones(1, "f4"), "FP32")]))
    assert code == "StatusCode.INTERNAL"
    assert "nothing" not in said  # what went wrong within is in the log, not with clients


def test_a_full_queue_says_when_to_try_again(served: tuple[Double, str]) -> None:
    with grpc.insecure_channel(served[1]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        request = triton.service_pb2.ModelInferRequest(model_name="full")
        with pytest.raises(grpc.RpcError) as e:
            call(request.SerializeToString())
    assert e.value.code() == grpc.StatusCode.UNAVAILABLE
    assert ("grpc-retry-pushback-ms", "2000") in [(k, v) for k, v in e.value.trailing_metadata()]


def test_the_repository(served: tuple[Double, str], client: Any) -> None:
    client.unload_model("counts")
    states = {m.name: m.state for m in client.get_model_repository_index().models}
    assert states["counts"] == "UNAVAILABLE"
    assert not client.is_model_ready("counts")
    client.load_model("counts", config=json.dumps({"max_batch_size": 2}))
    assert served[0].configs["counts"] == {"max_batch_size": 2}
    assert client.is_model_ready("counts")
    assert failure(lambda: client.load_model("nothing"))[0] == "StatusCode.NOT_FOUND"
    files = {"file:1/model.onnx": b"x"}
    assert failure(lambda: client.load_model("counts", config="{}", files=files))[0] == "StatusCode.UNIMPLEMENTED"


def test_a_deadline_and_a_client_that_leaves_end_the_request(served: tuple[Double, str], client: Any) -> None:
    double = served[0]
    double.slow_s = 60.0
    try:
        before = double.cancelled
        assert failure(lambda: client.infer("sums", two(), client_timeout=0.1))[0] == "StatusCode.DEADLINE_EXCEEDED"
        done: list[Any] = []
        call = client.async_infer("sums", two(), lambda result, error: done.append(error))
        wait_for(lambda: len(double.requests) and double.requests[-1].timeout_s == 0)
        call.cancel()
        wait_for(lambda: double.cancelled == before + 2)
        wait_for(lambda: bool(done))
        assert done[0].status() == "StatusCode.CANCELLED"
    finally:
        double.slow_s = 0.001


def test_damaged_messages_are_refused_and_the_server_lives(served: tuple[Double, str], client: Any) -> None:
    draw = random.Random(5)
    good = triton.service_pb2.ModelInferRequest(model_name="sums", id="1")
    for tensor in ("a", "b"):
        made = good.inputs.add(name=tensor, datatype="FP32", shape=[2, 4])
        made.parameters["p"].int64_param = 3
        good.raw_input_contents.append(np.ones(8, "f4").tobytes())
    whole = good.SerializeToString()
    codes = set()
    served[0].keep = False
    with grpc.insecure_channel(served[1]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for at in range(200):
            data = bytearray(whole)
            for _ in range(draw.randint(1, 6)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            data = bytes(data[: draw.randint(1, len(data))]) if at % 3 else draw.randbytes(draw.randint(1, 200))
            try:
                call(data)
            except grpc.RpcError as e:
                codes.add(e.code().name)
    served[0].keep = True
    assert "INVALID_ARGUMENT" in codes
    assert codes <= {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED"}
    assert client.infer("sums", two()).as_numpy("sum").shape == (2, 4)


def wait_for(true: Any) -> None:
    import time

    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)
