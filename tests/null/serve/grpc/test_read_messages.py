"""Messages of gRPC are read within the server's memory: what has come is counted, what does not fit is refused."""

from __future__ import annotations

import asyncio
import gzip
import socket
import sys
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest

from opalite.serve.grpc.grpc_server import GrpcFront, GrpcSettings
from opalite.serve.grpc.received_bytes import ReceivedBytes, client_of
from opalite.serve.proto.message_classes import ModelInferRequest, ModelInferResponse
from opalite.serve.run_servers import serving
from opalite.serve.wire.client_limits import GrpcLimits

from ....helpers.serving import Double
from .test_inference_service import wait_for

INFER = "/inference.GRPCInferenceService/ModelInfer"
LIMITS = GrpcLimits(message_bytes=1 << 24)


def request(elements: int) -> bytes:
    made = ModelInferRequest(model_name="counts", raw_input_contents=[np.zeros(elements, np.int64).tobytes()])
    made.inputs.add(name="x", datatype="INT64", shape=[elements])
    return bytes(made.SerializeToString())


def code_of(call: Any) -> str:
    with pytest.raises(grpc.RpcError) as e:
        call()
    return str(e.value.code().name)


@pytest.fixture(scope="module")
def small() -> Any:
    double = Double(memory_bytes=3 << 20)
    with serving(lambda: double, [GrpcFront(GrpcSettings(port=0, limits=LIMITS))]) as (address,):
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(address.removeprefix("grpc://"), options=options) as channel:
            yield double, channel


def test_a_message_beyond_the_memory_is_refused_and_freed(small: Any) -> None:
    double, channel = small
    call = channel.unary_unary(INFER, response_deserializer=ModelInferResponse.FromString)
    with pytest.raises(grpc.RpcError, match="memory for requests") as e:
        call(request(500_000))
    assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert ("grpc-retry-pushback-ms", "1000") in [(k, v) for k, v in e.value.trailing_metadata()]
    assert len(call(request(50_000)).raw_output_contents[0]) == 400_000
    wait_for(lambda: double.memory.held == 0)


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_counted_as_they_grow(small: Any, algorithm: Any) -> None:
    double, channel = small
    call = channel.unary_unary(INFER, response_deserializer=ModelInferResponse.FromString)
    assert len(call(request(50_000), compression=algorithm).raw_output_contents[0]) == 400_000
    assert code_of(lambda: call(request(500_000), compression=algorithm)) == "RESOURCE_EXHAUSTED"
    bomb = gzip.compress(bytes(1 << 26))
    assert code_of(lambda: call(bomb)) == "RESOURCE_EXHAUSTED", "a compressed message inside of one without a mark"
    assert code_of(lambda: call(gzip.compress(request(10))[:-3])) == "INVALID_ARGUMENT"
    wait_for(lambda: double.memory.held == 0)


def test_every_call_has_a_limit(small: Any) -> None:
    _, channel = small
    for path in ("/inference.GRPCInferenceService/ServerLive", "/grpc.health.v1.Health/Check"):
        assert code_of(lambda path=path: channel.unary_unary(path)(bytes(2_000_000))) == "RESOURCE_EXHAUSTED"
    answer = channel.unary_unary("/grpc.health.v1.Health/Check")(HealthCheckRequest().SerializeToString())
    assert answer == b"\x08\x01"


def test_calls_that_send_nothing_hold_nothing(small: Any) -> None:
    double, channel = small

    async def silent(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as other:
            calls = [other.stream_unary(INFER)() for _ in range(40)]
            await asyncio.gather(*(c.wait_for_connection() for c in calls))
            await asyncio.sleep(0.1)
            answer = await other.unary_unary(INFER)(request(100_000))
            assert len(answer) > 800_000
            for each in calls:
                each.cancel()

    asyncio.run(silent(channel._channel.target().decode()))
    wait_for(lambda: double.memory.held == 0)


def test_a_stream_ends_with_the_reason(small: Any) -> None:
    _, channel = small
    call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    answers = call(iter([request(5), request(500_000)]))
    with pytest.raises(grpc.RpcError) as e:
        list(answers)
    assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.skipif(sys.platform != "linux", reason="the system's counts are Linux's")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_message_that_does_not_end_is_counted(host: str) -> None:
    """Written by hand: a client of grpc sends messages whole."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((host, port)) as client, listener.accept()[0] as server:
            own = client.getsockname()
            peer = f"ipv6:[{own[0]}]:{own[1]}" if ":" in host else f"ipv4:{own[0]}:{own[1]}"
            received = ReceivedBytes()
            assert received.known(peer) is None
            received.find()
            assert received.known(peer) == 0
            client.sendall(b"x" * 1000)
            wait_for(lambda: received.known(peer) == 1000)
            server.close()
            assert received.known(peer) is None


@pytest.mark.parametrize(
    "peer,client", [("ipv4:1.2.3.4:5", "1.2.3.4"), ("ipv6:%5B::1%5D:5", "::1"), ("unix:", "unix:")]
)
def test_a_client_is_an_address(peer: str, client: str) -> None:
    assert client_of(peer) == client
