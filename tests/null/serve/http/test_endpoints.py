"""The calls of the protocol by JSON and binary data, answered by a server that is a double."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest

from opalite.serve.http.asgi_app import App
from opalite.serve.wire.client_limits import HttpLimits

from ....helpers.asgi import binary, get, post, tensor
from ....helpers.serving import MODELS, Double

A = np.arange(8, dtype=np.float32).reshape(2, 4)
SUMS = "/v2/models/sums/infer"


@pytest.fixture
def double() -> Double:
    double = Double()
    double.running = True
    return double


@pytest.fixture
def app(double: Double) -> App:
    return App(double, HttpLimits())


def pair(b: Any = None) -> dict[str, Any]:
    return {"inputs": [tensor("a", "FP32", [2, 4], A.tolist()), tensor("b", "FP32", [2, 4], b or A.ravel().tolist())]}


def test_health_says_what_the_engine_says(app: App, double: Double) -> None:
    assert get(app, "/v2/health/live").object == {"live": True}
    assert get(app, "/v2/health/ready").object == {"ready": True}
    app.calls.stopping = True
    assert get(app, "/v2/health/ready").status == 503
    assert get(app, "/v2/health/live").status == 200
    double.running = False
    assert get(app, "/v2/health/live").status == 503


def test_models_are_told_of(app: App, double: Double) -> None:
    assert get(app, "/v2").object["name"] == "double"
    told = get(app, "/v2/models/sums/versions/1").object
    assert told["inputs"][0] == {"name": "a", "datatype": "FP32", "shape": [-1, 4]}
    assert get(app, "/v2/models/sums").object == told
    assert get(app, "/v2/models/sums/ready").object == {"name": "sums", "ready": True}
    assert get(app, "/v2/models/nothing/ready").status == 503
    assert get(app, "/v2/models/sums/config").object["max_batch_size"] == 4
    (one,) = get(app, "/v2/models/sums/stats").object["model_stats"]
    assert one["inference_stats"]["success"] == {"count": 2, "ns": 3000}
    assert one["batch_stats"][0]["batch_size"] == 2
    assert len(get(app, "/v2/models/stats").object["model_stats"]) == len(MODELS)


def test_models_are_loaded_and_unloaded(app: App, double: Double) -> None:
    assert post(app, "/v2/repository/models/sums/unload", {"parameters": {"unload_dependents": False}}).status == 200
    states = {e["name"]: e["state"] for e in post(app, "/v2/repository/index").object}
    assert states["sums"] == "UNAVAILABLE"
    ready = post(app, "/v2/repository/index", {"ready": True}).object
    assert "sums" not in {e["name"] for e in ready}
    assert post(app, SUMS, pair()).status == 404
    done = post(app, "/v2/repository/models/sums/load", {"parameters": {"config": '{"max_batch_size": 2}'}})
    assert (done.status, done.body) == (200, b"")
    assert double.configs["sums"] == {"max_batch_size": 2}
    assert post(app, SUMS, pair()).status == 200


def test_files_do_not_come_by_requests(app: App) -> None:
    reply = post(app, "/v2/repository/models/sums/load", {"parameters": {"file:1/model.onnx": "AAAA"}})
    assert (reply.status, "repository" in reply.error) == (501, True)


def test_json_in_json_out(app: App, double: Double) -> None:
    reply = post(app, SUMS, {**pair(), "id": "7", "parameters": {"priority": 2, "timeout": 1000}})
    assert reply.headers["content-type"] == "application/json"
    assert reply.object == {
        "model_name": "sums", "model_version": "1", "id": "7",
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [2, 4], "data": (A + A).ravel().tolist()},
            {"name": "difference", "datatype": "FP32", "shape": [2, 4], "data": [0.0] * 8},
        ],
    }  # fmt: skip
    (request,) = double.requests
    assert (request.id, request.priority, request.timeout_s) == ("7", 2, 0.001)


def test_binary_and_json_are_mixed(app: App) -> None:
    inputs = [tensor("a", "FP32", [2, 4], binary_data_size=32), tensor("b", "FP32", [2, 4], A.tolist())]
    outputs = [{"name": "difference", "parameters": {"binary_data": True}}, {"name": "sum"}]
    body, headers = binary({"inputs": inputs, "outputs": outputs}, A * 3)
    reply = post(app, SUMS, body, headers)
    length = int(reply.headers["inference-header-content-length"])
    told = json.loads(reply.body[:length])["outputs"]
    assert reply.headers["content-type"] == "application/octet-stream"
    assert [o["name"] for o in told] == ["difference", "sum"]
    assert told[0]["parameters"] == {"binary_data_size": 32}
    np.testing.assert_array_equal(np.frombuffer(reply.body[length:], np.float32), (A * 2).ravel())
    np.testing.assert_array_equal(told[1]["data"], (A * 4).ravel())


def test_all_outputs_are_binary_if_the_request_says_so(app: App) -> None:
    outputs = [{"name": "sum"}, {"name": "difference", "parameters": {"binary_data": False}}]
    reply = post(app, SUMS, {**pair(), "outputs": outputs, "parameters": {"binary_data_output": True}})
    length = int(reply.headers["inference-header-content-length"])
    np.testing.assert_array_equal(np.frombuffer(reply.body[length:], np.float32), (A + A).ravel())
    assert json.loads(reply.body[:length])["outputs"][1]["data"] == [0.0] * 8


def test_texts(app: App) -> None:
    inputs = {"inputs": [tensor("text", "BYTES", [2, 1], ["grün", ""])]}
    assert post(app, "/v2/models/shout/infer", inputs).object["outputs"][0]["data"] == ["GRüN", ""]
    raw = b"\x02\0\0\0ab\x03\0\0\0c\xffd"
    body, headers = binary({"inputs": [tensor("text", "BYTES", [1, 2], binary_data_size=len(raw))]}, raw)
    reply = post(app, "/v2/models/shout/infer", body, headers)
    assert (reply.status, "element 1 is no UTF-8 text" in reply.error) == (400, True)
    asked = [{"name": "text", "parameters": {"binary_data": False}}]
    body, headers = binary({**inputs, "outputs": asked}, b"")
    damaged = body.replace(b"gr\\u00fcn", b"gr\xffn")
    assert damaged != body
    headers["Inference-Header-Content-Length"] = str(len(damaged))
    reply = post(app, "/v2/models/shout/infer", damaged, headers)
    assert (reply.status, "send BYTES of other kinds as binary data" in reply.error) == (400, True)
    lone = json.dumps({"inputs": [tensor("text", "BYTES", [1, 1], ["\udcff"])]}).encode()
    reply = post(app, "/v2/models/shout/infer", lone)
    assert (reply.status, "no Unicode" in reply.error) == (400, True)
    head = {"inputs": [tensor("text", "BYTES", [1, 2], binary_data_size=len(raw))]}
    body, headers = binary({**head, "parameters": {"binary_data_output": True}}, raw)
    assert post(app, "/v2/models/shout/infer", body, headers).body.endswith(b"\x02\0\0\0AB\x03\0\0\0C\xffD")


def test_halves_are_binary_only(app: App) -> None:
    x = np.array([1.5, -2], np.float16)
    head = {"inputs": [tensor("x", "FP16", [2], binary_data_size=4)], "parameters": {"binary_data_output": True}}
    reply = post(app, "/v2/models/half/infer", *binary(head, x))
    np.testing.assert_array_equal(np.frombuffer(reply.body[-4:], np.float16), x * 2)
    assert post(app, "/v2/models/half/infer", {"inputs": [tensor("x", "FP16", [1], [1.5])]}).status == 501
    del head["parameters"]
    assert post(app, "/v2/models/half/infer", *binary(head, x)).status == 501


@pytest.mark.parametrize("batched", [True, False])
def test_classes(app: App, double: Double, batched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(double, "model_config", lambda name, version="": {"max_batch_size": 4 if batched else 0})
    asked = [{"name": "sum", "parameters": {"classification": 2}}]
    (output,) = post(app, SUMS, {**pair(), "outputs": asked}).object["outputs"]
    if batched:
        expected = ([2, 2], ["6.000000:3", "4.000000:2", "14.000000:3", "12.000000:2"])
    else:
        expected = ([2], ["14.000000:7", "12.000000:6"])
    assert (output["shape"], output["data"], output["datatype"]) == (*expected, "BYTES")


@pytest.mark.parametrize("encoding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_are_compressed_both_ways(app: App, encoding: str, pack: Any) -> None:
    x = np.zeros((1, 3, 224, 224), np.float32)
    inputs = [tensor("input", "FP32", [1, 3, 224, 224], binary_data_size=x.nbytes)]
    body, headers = binary({"inputs": inputs, "parameters": {"binary_data_output": True}}, x)
    headers |= {"Content-Encoding": encoding, "Accept-Encoding": encoding}
    reply = post(app, "/v2/models/picture/infer", pack(body), headers)
    assert reply.headers["content-encoding"] == encoding
    plain = gzip.decompress(reply.body) if encoding == "gzip" else zlib.decompress(reply.body)
    assert len(plain) == int(reply.headers["inference-header-content-length"]) + 4000
    listed = post(app, "/v2/models/picture/infer", pack(body), headers | {"Accept-Encoding": "gzip, deflate, br"})
    assert "content-encoding" not in listed.headers, "what every library sends is no wish"


def test_the_trace_context_is_passed_on(app: App, double: Double) -> None:
    post(app, SUMS, pair(), {"traceparent": "00-ab-cd-01", "tracestate": "x=1"})
    assert double.requests[0].trace == {"traceparent": "00-ab-cd-01", "tracestate": "x=1"}


def test_arrays_lie_in_the_body(app: App, double: Double) -> None:
    inputs = [tensor(n, "FP32", [2, 4], binary_data_size=32) for n in "ab"]
    post(app, SUMS, *binary({"inputs": inputs}, A, A))
    a, b = (t.array for t in double.requests[0].inputs)
    assert b.__array_interface__["data"][0] - a.__array_interface__["data"][0] == 32, "no copy was made"


X = [tensor("x", "FP32", [1], [1.0])]


@pytest.mark.parametrize(
    "body, status, words",
    [
        (b"", 400, "no 'inputs'"),
        (b"nonsense", 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        (b"[]", 400, "no object"),
        (b'{"inputs": ' + b"[" * 100_000, 400, "too deeply"),
        (
            b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [' + b"9" * 5000 + b"]}]}",
            400,
            "no JSON",
        ),
        ({"inputs": {}}, 400, "no list"),
        ({"inputs": [1]}, 400, "input 0 is no object"),
        ({"inputs": [{"name": ""}]}, 400, "no 'name'"),
        ({"inputs": X * 2}, 400, "twice"),
        ({"inputs": X, "id": 5}, 400, "'id'"),
        ({"inputs": X, "parameters": []}, 400, "'parameters'"),
        ({"inputs": X, "parameters": {"a": [1]}}, 400, "parameter 'a'"),
        ({"inputs": X, "parameters": {"binary_data_output": 1}}, 400, "true or false"),
        ({"inputs": X, "outputs": [{"name": "y"}, {"name": "y"}]}, 400, "twice"),
        ({"inputs": X, "outputs": [{"name": "y", "parameters": {"classification": -1}}]}, 400, "classification"),
        ({"inputs": [tensor("x", "FP32", [1], shared_memory_region="r")]}, 400, "numbers of bytes"),
        ({"inputs": [tensor("x", "FP32", [1], shared_memory_byte_size=4)]}, 400, "the name of a region"),
        ({"inputs": [tensor("x", "FP32", [1], shared_memory_region="r", shared_memory_byte_size=4)]}, 400, "no region"),
        ({"inputs": [tensor("x", "FLOAT", [1], [1.0])]}, 400, "none of BOOL"),
        ({"inputs": [tensor("x", 5, [1], [1.0])]}, 400, "'datatype' is 5"),  # type: ignore[arg-type]
        ({"inputs": [tensor("x", "FP32", [-1], [1.0])]}, 400, "'shape' is [-1]"),
        ({"inputs": [tensor("x", "FP32", [True], [1.0])]}, 400, "'shape'"),
        ({"inputs": [tensor("x", "FP32", [1.0], [1.0])]}, 400, "'shape'"),  # type: ignore[list-item]
        ({"inputs": [tensor("x", "FP32", [1 << 70], [1.0])]}, 400, "'shape'"),
        ({"inputs": [tensor("x", "FP32", [1 << 31, 1 << 31], [1.0])]}, 413, "elements that are allowed"),
        ({"inputs": [tensor("x", "FP32", [0, 1 << 62], [])]}, 413, "elements that are allowed"),
        ({"inputs": [tensor("x", "FP32", [1] * 40, [1.0])]}, 400, "dimensions"),
        ({"inputs": [tensor("x", "FP32", [2], [1.0])]}, 400, "1 elements, and shape [2] has 2"),
        ({"inputs": [tensor("x", "FP32", [1])]}, 400, "neither 'data' nor"),
        ({"inputs": [tensor("x", "FP32", [1], [1.0], binary_data_size=4)]}, 400, "both"),
        ({"inputs": [tensor("x", "FP32", [1], binary_data_size=4)]}, 400, "0 bytes of the body are left"),
        ({"inputs": [tensor("x", "FP32", [1], binary_data_size=-4)]}, 400, "a number of bytes"),
        ({"inputs": [tensor("x", "FP32", [1], binary_data_size="4")]}, 400, "a number of bytes"),
    ],
)
def test_malformed_requests_are_told_why(app: App, body: Any, status: int, words: str) -> None:
    reply = post(app, "/v2/models/full/infer", body)
    assert (reply.status, words in reply.error) == (status, True), reply.body


def test_binary_data_has_to_fit(app: App) -> None:
    head = {"inputs": [tensor("a", "FP32", [2, 4], binary_data_size=32), tensor("b", "FP32", [2, 4], A.tolist())]}
    body, headers = binary(head, A)
    assert "left after" in post(app, SUMS, body + b"x", headers).error
    assert "28 bytes" in post(app, SUMS, body[:-4], headers).error
    assert "no number" in post(app, SUMS, body, {"Inference-Header-Content-Length": "-5"}).error
    assert "the body has" in post(app, SUMS, body, {"Inference-Header-Content-Length": "5000"}).error
    head["inputs"][0]["parameters"]["binary_data_size"] = 28
    assert "32 bytes, but 28 came" in post(app, SUMS, *binary(head, A[:, :].tobytes()[:28])).error


@pytest.mark.parametrize(
    "limit, words",
    [({"json_bytes": 50}, "the JSON has"), ({"elements": 7}, "more than the 7"), ({"tensors": 1}, "2 tensors")],
)
def test_limits_are_kept(double: Double, limit: Any, words: str) -> None:
    reply = post(App(double, HttpLimits(**limit)), SUMS, pair())
    assert (reply.status, words in reply.error) == (413, True)


def test_failures_have_their_status(app: App, double: Double, caplog: pytest.LogCaptureFixture) -> None:
    busy = post(app, "/v2/models/full/infer", {"inputs": X})
    assert (busy.status, busy.headers["retry-after"]) == (503, "2")
    assert post(app, "/v2/models/nothing/infer", {"inputs": X}).status == 404
    assert post(app, "/v2/models/sums/versions/9/infer", pair()).status == 404
    fault = post(app, "/v2/models/fails/infer", {"inputs": X})
    assert (fault.status, "KeyError" in fault.error) == (500, False)
    assert "KeyError" in caplog.text, "the log has what the client is not told"


@pytest.mark.parametrize("name", ["..", "a..b", "%2e%2e", "-x", ".hidden", "a b", "a\\b", "ä", "x" * 300, "a\0b", "~"])
def test_names_are_no_paths(app: App, double: Double, name: str) -> None:
    for path in (f"/v2/models/{name}", f"/v2/models/sums/versions/{name}/ready", f"/v2/repository/models/{name}/load"):
        reply = post(app, path) if path.endswith("load") else get(app, path)
        assert (reply.status, "letters, digits" in reply.error) == (404, True)
    assert not double.configs


def test_unknown_paths_and_methods(app: App) -> None:
    assert get(app, "/").status == get(app, "/v2/models").status == get(app, "/v3").status == 404
    assert get(app, "/v2/models/a/b/infer").status == 404
    reply = get(app, SUMS)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert "/infer" in reply.error


def test_settings_and_regions_refuse_what_they_do_not_know(app: App) -> None:
    register = "/v2/systemsharedmemory/region/r/register"
    for body, words in (
        ({"byte_size": 8}, "'key' is missing"),
        ({"key": "/etc/passwd", "byte_size": 8}, "as shm_open takes it"),
        ({"key": 5, "byte_size": 8}, "as shm_open takes it"),
        ({"key": "a", "byte_size": 0}, "'byte_size' is a whole number from 1 on"),
        ({"key": "a", "byte_size": 8, "offset": -1}, "'offset' is a whole number from 0 on"),
        ({"key": "a", "byte_size": True}, "'byte_size'"),
        ({"key": "a", "byte_size": 1 << 70}, "'byte_size'"),
    ):
        reply = post(app, register, body)
        assert (reply.status, words in reply.error) == (400, True), reply.body
    assert post(app, "/v2/logging", {"log_verbose_level": -1}).status == 400
    assert post(app, "/v2/logging", {"log_info": 1}).status == 400
    assert post(app, "/v2/trace/setting", {"trace_rate": "x"}).status == 400
    assert post(app, "/v2/models/sums/trace/setting", {"trace_rate": "5"}).status == 501
    assert get(app, register).status == 405


@pytest.mark.parametrize(
    "host, status",
    [
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("localhost:8000", 200),
        ("box.example", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_browsers_ask_by_known_names_only(double: Double, host: str, status: int) -> None:
    """A page whose name was made to point here is of the same origin as its requests (DNS rebinding)."""
    app = App(double, HttpLimits(), hosts=["Box.example"])
    told = post(app, "/v2/repository/models/sums/load", b"", {"host": host, "origin": f"http://{host}"})
    assert told.status == status
    assert get(app, "/v2", host=host, **{"sec-fetch-site": "same-origin"}).status == status
    assert get(app, "/v2", host=host).status == 200, "no browser"
