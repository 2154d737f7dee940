"""ModelStreamInfer through Triton's clients, before a double of the engine."""

from __future__ import annotations

import asyncio
import queue
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as aio
from tritonclient.grpc import service_pb2

from ....helpers.serving import Double
from .test_inference_service import given, two, wait_for


def text(words: bytes) -> list[triton.InferInput]:
    return [given("text_input", np.array([words], object), "BYTES")]


def test_pieces_of_text_come_in_order_and_the_last_says_so(served: tuple[Double, str]) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = triton.InferenceServerClient(served[1])
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("writer", text(b"one two three"), request_id="a", enable_empty_final_response=True)
    pieces, final = [], False
    while not final:
        result, error = answers.get(timeout=10)
        assert error is None
        response = result.get_response()
        assert response.id == "a"
        final = response.parameters["triton_final_response"].bool_param
        if response.outputs:
            pieces.append(result.as_numpy("text_output")[0])
    assert pieces == [b"one ", b"two ", b"three "]
    client.async_stream_infer("sums", two(), request_id="b")
    assert answers.get(timeout=10)[0].as_numpy("sum").shape == (2, 4)
    client.stop_stream()
    assert answers.empty()


def test_a_failed_request_leaves_the_stream_open(served: tuple[Double, str]) -> None:
    async def talk() -> list[tuple[Any, Any]]:
        async def requests() -> Any:
            yield {"model_name": "nothing", "inputs": two(), "request_id": "lost"}
            yield {"model_name": "counts", "inputs": [given("x", np.array([4]), "INT64")], "request_id": "kept"}

        async with aio.InferenceServerClient(served[1]) as client:
            return [pair async for pair in client.stream_infer(requests())]

    found = asyncio.run(talk())
    errors = [error for _, error in found if error is not None]
    assert len(found) == 2
    assert "unknown model: 'nothing'" in str(errors[0])
    assert [r.as_numpy("y").tolist() for r, _ in found if r is not None] == [[5]]


def test_a_damaged_message_is_one_failure_of_the_stream(served: tuple[Double, str]) -> None:
    good = service_pb2.ModelInferRequest(model_name="counts", id="g")
    good.inputs.add(name="x", datatype="INT64", shape=[1]).contents.int64_contents.append(1)
    with grpc.insecure_channel(served[1]) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        raw = list(call(iter([b"\xff\xff", good.SerializeToString()])))
    found = sorted((service_pb2.ModelStreamInferResponse.FromString(r) for r in raw), key=lambda r: r.error_message)
    assert [bool(r.error_message) for r in found] == [False, True]
    assert found[0].infer_response.id == "g"
    assert found[1].infer_response.parameters["triton_final_response"].bool_param


def test_a_client_that_leaves_ends_the_text(served: tuple[Double, str]) -> None:
    double = served[0]
    before, pieces = double.cancelled, double.pieces
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = triton.InferenceServerClient(served[1])
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("writer", text(b"on and on"), parameters={"max_tokens": 100_000})
    assert answers.get(timeout=10)[1] is None
    client.stop_stream(cancel_requests=True)
    wait_for(lambda: double.cancelled > before)
    assert 0 < double.pieces - pieces < 50_000
