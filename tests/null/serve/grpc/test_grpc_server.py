"""Ports, keys, TLS and the end of the gRPC server; its health service."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tritonclient.utils import InferenceServerException

from opalite.errors import InputError
from opalite.serve.grpc.grpc_server import GrpcFront, GrpcSettings
from opalite.serve.run_servers import serving
from opalite.serve.wire.listening_front import Key

from ....helpers.certificate import make_certificate
from ....helpers.serving import Double
from .test_inference_service import two, wait_for

REQUEST = HealthCheckRequest
STATUS = HealthCheckResponse.ServingStatus


def check(address: str, service: str = "", metadata: Any = None) -> str:
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        answer = call(REQUEST(service=service).SerializeToString(), metadata=metadata)
        return str(STATUS.Name(HealthCheckResponse.FromString(answer).status))


def test_health_of_the_server_and_of_models(served: tuple[Double, str]) -> None:
    double, address = served
    assert check(address) == check(address, "inference.GRPCInferenceService") == check(address, "sums") == "SERVING"
    double.unloaded.add("flags")
    assert check(address, "flags") == "NOT_SERVING"
    with pytest.raises(grpc.RpcError) as e:
        check(address, "nothing")
    assert e.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_watch_tells_what_changes(served: tuple[Double, str]) -> None:
    double, address = served
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_stream("/grpc.health.v1.Health/Watch")
        states = call(REQUEST(service="picture").SerializeToString())
        assert HealthCheckResponse.FromString(next(states)).status == STATUS.Value("SERVING")
        double.unloaded.add("picture")
        assert HealthCheckResponse.FromString(next(states)).status == STATUS.Value("NOT_SERVING")
        double.unloaded.discard("picture")
        assert HealthCheckResponse.FromString(next(states)).status == STATUS.Value("SERVING")
        states.cancel()
        unknown = call(REQUEST(service="nothing").SerializeToString())
        assert HealthCheckResponse.FromString(next(unknown)).status == STATUS.Value("SERVICE_UNKNOWN")
        unknown.cancel()


def test_a_watch_ends_with_the_server() -> None:
    with serving(Double, [GrpcFront(GrpcSettings(port=0))], grace_s=60) as (address,):
        channel = grpc.insecure_channel(address.removeprefix("grpc://"))
        states = channel.unary_stream("/grpc.health.v1.Health/Watch")(REQUEST().SerializeToString())
        assert HealthCheckResponse.FromString(next(states)).status == STATUS.Value("SERVING")
        rest: list[bytes] = []
        thread = threading.Thread(target=lambda: rest.extend(states))
        thread.start()
    thread.join(60)
    channel.close()
    assert [HealthCheckResponse.FromString(r).status for r in rest] == [STATUS.Value("NOT_SERVING")]


def test_a_key_is_asked_for_but_by_probes() -> None:
    front = GrpcFront(GrpcSettings(port=0, key=Key("a long secret".replace(" ", "-"))))
    assert not front.is_open
    with serving(Double, [front]) as (address,):
        place = address.removeprefix("grpc://")
        client = triton.InferenceServerClient(place)
        assert client.is_server_live()
        assert client.is_server_ready()
        assert check(place) == "SERVING"
        for call in (
            lambda: client.infer("sums", two()),
            lambda: client.get_server_metadata(),
            lambda: client.infer("sums", two(), headers={"x-api-key": "a-long-secreT"}),
        ):
            with pytest.raises(InferenceServerException) as e:
                call()
            assert e.value.status() == "StatusCode.UNAUTHENTICATED"
            assert "a-long" not in e.value.message()
        for headers in ({"authorization": "Bearer a-long-secret"}, {"x-api-key": "a-long-secret"}):
            assert client.infer("sums", two(), headers=headers).as_numpy("sum").shape == (2, 4)
        with grpc.insecure_channel(place) as channel:
            stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            with pytest.raises(grpc.RpcError) as refused:
                list(stream(iter([b""])))
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_health_asks_for_the_key_where_it_is_not_open() -> None:
    with serving(Double, [GrpcFront(GrpcSettings(port=0, key=Key("secret-key"), open_health=False))]) as (address,):
        place = address.removeprefix("grpc://")
        with pytest.raises(grpc.RpcError) as e:
            check(place)
        assert e.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert check(place, metadata=(("x-api-key", "secret-key"),)) == "SERVING"


def test_what_was_accepted_is_answered_when_the_server_stops() -> None:
    double, found = Double(slow_s=0.5), []
    with serving(lambda: double, [GrpcFront(GrpcSettings(port=0))], grace_s=10) as (address,):
        client = triton.InferenceServerClient(address.removeprefix("grpc://"))
        thread = threading.Thread(target=lambda: found.append(client.infer("sums", two()).as_numpy("sum").shape))
        thread.start()
        wait_for(lambda: bool(double.requests))
    thread.join(10)
    assert found == [(2, 4)]
    assert double.cancelled == 0


def test_a_port_that_is_taken_or_a_host_that_is_none_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 is in use"):
            GrpcFront(GrpcSettings(port=port))
    with pytest.raises(InputError, match="is no address of this machine"):
        GrpcFront(GrpcSettings(host="no.such.host.invalid"))
    front = GrpcFront(GrpcSettings(port=0))
    front.close()
    assert GrpcFront(GrpcSettings(host="0.0.0.0", port=0)).is_open


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_with_a_certificate_and_what_is_none(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    front = GrpcFront(GrpcSettings(port=0, tls_cert=str(certificate), tls_key=str(key)))
    with serving(Double, [front]) as (address,):
        assert address.startswith("grpcs://127.0.0.1:")
        place = address.removeprefix("grpcs://")
        client = triton.InferenceServerClient(place, ssl=True, root_certificates=str(certificate))
        assert client.infer("sums", two()).as_numpy("sum").shape == (2, 4)
        with pytest.raises(InferenceServerException):
            triton.InferenceServerClient(place).is_server_live(client_timeout=5)
    key.write_text("this is no key")
    for files in ((certificate, key), (tmp_path / "none.pem", key)):
        broken = GrpcFront(GrpcSettings(port=0, tls_cert=str(files[0]), tls_key=str(files[1])))
        with pytest.raises(InputError, match=r"certificate .* cannot be used"):
            asyncio.run(broken.start(Double()))
        broken.close()
