"""Calls that `tritonclient.http` and `tritonclient.grpc` offer alike: each takes the package and one of its clients.

The models are those of triton_calls.make_models, or serving.Double's.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = A[::-1].copy() * 0.5
WIDE = {
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8,
    "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "FP32": np.float32,
    "FP64": np.float64, "BF16": ml_dtypes.bfloat16, "BOOL": np.bool_,
}  # fmt: skip
"""Inputs of the model `types`, by datatype."""
CODES = {"400": "INVALID_ARGUMENT", "404": "NOT_FOUND", "501": "UNIMPLEMENTED"}


def given(api: ModuleType, name: str, array: Any, datatype: str = "") -> Any:
    made = api.InferInput(name, list(array.shape), datatype or np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


def two(api: ModuleType, a: Any = A, b: Any = B) -> list[Any]:
    return [given(api, "a", a), given(api, "b", b)]


def fails(call: Callable[[], Any], status: str, words: str) -> None:
    """Check status and message. status: HTTP's, which stands for gRPC's code."""
    with pytest.raises(InferenceServerException) as e:
        call()
    assert e.value.status().removeprefix("StatusCode.") in (status, CODES[status]), e.value
    assert words in e.value.message(), e.value


def is_grpc(api: ModuleType) -> bool:
    return api is triton_grpc


@contextlib.contextmanager
def region(client: Any, nbytes: int, offset: int = 0) -> Iterator[tuple[str, Any]]:
    """The name of a registered region from `offset` on, and the handle of its memory."""
    name = uuid.uuid4().hex
    handle = shm.create_shared_memory_region(name, f"/{name}", offset + nbytes)
    try:
        client.register_system_shared_memory(name, f"/{name}", nbytes, offset)
        yield name, handle
        client.unregister_system_shared_memory(name)
    finally:
        shm.destroy_shared_memory_region(handle)


def regions(api: ModuleType, client: Any, name: str = "") -> dict[str, Any]:
    """The status of regions, by name."""
    if is_grpc(api):
        found = client.get_system_shared_memory_status(name, as_json=True).get("regions", {})
        return {n: {**r, "byte_size": int(r["byte_size"])} for n, r in found.items()}
    return {r["name"]: r for r in client.get_system_shared_memory_status(name)}


def in_region(api: ModuleType, name: str, shape: Sequence[int], *place: Any, datatype: str = "FP32") -> Any:
    made = api.InferInput(name, list(shape), datatype)
    made.set_shared_memory(*place)
    return made


def out_region(api: ModuleType, name: str, *place: Any) -> Any:
    made = api.InferRequestedOutput(name)
    made.set_shared_memory(*place)
    return made


def infer_all_datatypes(api: ModuleType, client: Any) -> None:
    arrays = {name: np.array([[1, 0], [3, 7]]).astype(dtype) for name, dtype in WIDE.items()}
    arrays["INT64"][0, 0], arrays["UINT64"][0, 0] = 2**63 - 1, 2**64 - 1
    inputs = [given(api, f"x_{name}", array, name) for name, array in arrays.items()]
    scalar, fixed = np.array(3, np.float32), np.arange(4, dtype=np.float32)
    result = client.infer("types", [*inputs, given(api, "scalar", scalar), given(api, "fixed", fixed)])
    for name, array in arrays.items():
        found = result.as_numpy(f"y_{name}")
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array, name)
    np.testing.assert_array_equal(result.as_numpy("double"), np.float32(6))
    assert result.as_numpy("double").shape == ()
    np.testing.assert_array_equal(result.as_numpy("square"), fixed * fixed)


def infer_bytes_of_any_kind(api: ModuleType, client: Any) -> None:
    texts = np.array([b"a\x01b", "grün".encode(), b"", b"\xff\xd8\xff\x00jpg"], object)
    assert client.infer("echo", [given(api, "text", texts)]).as_numpy("same").tolist() == texts.tolist()


def infer_no_rows(api: ModuleType, client: Any) -> None:
    empty = np.zeros((0, 4), np.float32)
    assert client.infer("sums", two(api, empty, empty)).as_numpy("sum").shape == (0, 4)


def infer_with_headers_and_parameters(api: ModuleType, client: Any) -> None:
    client.infer("sums", two(api), headers={"x-own": "1"}, parameters={"own": "x", "n": 3}, priority=1)


def infer_many_at_once(api: ModuleType, client: Any) -> None:
    if not is_grpc(api):
        waiting = [client.async_infer("sums", two(api, A + n)) for n in range(8)]
        for n, one in enumerate(waiting):
            np.testing.assert_allclose(one.get_result().as_numpy("sum"), A + n + B)
        return
    done, found = threading.Event(), []

    def collect(result: Any, error: Any) -> None:
        found.append(result if error is None else error)
        if len(found) == 8:
            done.set()

    for _ in range(8):
        client.async_infer("sums", two(api), collect)
    assert done.wait(60)
    for result in found:
        np.testing.assert_allclose(result.as_numpy("sum"), A + B)


def stream_goes_on_after_an_error(api: ModuleType, client: Any) -> None:
    if not is_grpc(api):
        return
    done, found = threading.Event(), []

    def collect(result: Any, error: Any) -> None:
        found.append((result, error))
        if len(found) == 10:
            done.set()

    client.start_stream(collect)
    for n in range(8):
        client.async_stream_infer("sums", two(api, A + n), request_id=str(n))
    client.async_stream_infer("sums", two(api)[:1], request_id="bad")
    client.async_stream_infer("sums", two(api), request_id="last", enable_empty_final_response=True)
    assert done.wait(60), found
    client.stop_stream()
    answers = [result.get_response() for result, error in found if error is None]
    assert sorted(a.id for a in answers) == sorted([*map(str, range(8)), "last"])
    assert all(a.parameters["triton_final_response"].bool_param and a.outputs for a in answers)
    assert ["'b'" in str(error) for _, error in found if error is not None] == [True]


def shared_memory(api: ModuleType, client: Any) -> None:
    """Inputs and outputs in one region behind an offset, and beside tensors of the request."""
    with region(client, 128, 4096) as (name, handle):
        assert regions(api, client, name)[name]["key"] == f"/{name}"
        assert regions(api, client)[name]["byte_size"] == 128
        shm.set_shared_memory_region(handle, [A, B], 4096)
        inputs = [in_region(api, "a", A.shape, name, 32), in_region(api, "b", B.shape, name, 32, 32)]
        outputs = [out_region(api, "sum", name, 32, 64), out_region(api, "difference", name, 32, 96)]
        result = client.infer("sums", inputs, outputs=outputs)
        told = result.get_output("sum") if is_grpc(api) else result.get_output("sum")["parameters"]
        assert "shared_memory_offset" in (told.parameters if is_grpc(api) else told)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, (2, 4), 4096 + 64), A + B)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, (2, 4), 4096 + 96), A - B)
        outputs = [out_region(api, "sum", name, 64), api.InferRequestedOutput("difference")]
        result = client.infer("sums", [given(api, "a", A), inputs[1]], outputs=outputs)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, (2, 4), 4096), A + B)
        np.testing.assert_array_equal(result.as_numpy("difference"), A - B)
    assert name not in regions(api, client)


def shared_memory_of_bytes(api: ModuleType, client: Any) -> None:
    with region(client, 256) as (name, handle):
        raw = b"".join(len(t).to_bytes(4, "little") + t for t in (b"\xff\xd8", b"", b"abc"))
        handle._mpsm_handle.buf[: len(raw)] = raw
        text = in_region(api, "text", [3], name, len(raw), datatype="BYTES")
        client.infer("echo", [text], outputs=[out_region(api, "same", name, 100, 100)])
        found = shm.get_contents_as_numpy(handle, np.object_, (3,), 100)
        assert found.tolist() == [b"\xff\xd8", b"", b"abc"]


def shared_memory_that_does_not_fit(api: ModuleType, client: Any) -> None:
    with region(client, 64) as (name, handle):
        again = lambda: client.register_system_shared_memory(name, f"/{name}", 64)  # noqa: E731
        fails(again, "400", "registered already")

        def infer(a: Any, *outputs: Any) -> Any:
            return lambda: client.infer("sums", [a, given(api, "b", B)], outputs=outputs or None)

        a = given(api, "a", A)
        fails(infer(in_region(api, "a", A.shape, "nowhere", 32)), "400", "there is no region 'nowhere'")
        fails(infer(in_region(api, "a", A.shape, name, 32, 40)), "400", "past the end of region")
        fails(infer(in_region(api, "a", A.shape, name, 28)), "400", "takes 32 bytes, but 28 came")
        fails(infer(a, out_region(api, "sum", name, 65)), "400", "past the end of region")
        fails(infer(a, out_region(api, "sum", name, 31)), "400", "has 32 bytes, and the request gives it 31")
        fails(infer(a, out_region(api, "sum", "nowhere", 31)), "400", "there is no region 'nowhere'")
        os.truncate(f"/dev/shm/{name}", 16)
        fails(infer(in_region(api, "a", A.shape, name, 32)), "400", "has 16 bytes, and the region ends at 32")
        fails(infer(a, out_region(api, "sum", name, 32)), "400", "has 16 bytes, and the region ends at 32")
        os.truncate(f"/dev/shm/{name}", 64)
        handle._mpsm_handle.unlink()  # the name vanishes, the memory stays
        shm.set_shared_memory_region(handle, [A])
        client.infer("sums", [in_region(api, "a", A.shape, name, 32), given(api, "b", B)])
        handle._mpsm_handle.unlink = lambda: None  # the client's own clean-up
    fails(lambda: client.get_system_shared_memory_status("nowhere"), "400", "no region")
    client.unregister_system_shared_memory("nowhere")


def shared_memory_of_other_names(api: ModuleType, client: Any) -> None:
    for key in ("/etc/passwd", "../etc/passwd", "/../../etc/passwd", "", "/", ".", "/a/b", "a\0b", "x" * 300):
        call = lambda key=key: client.register_system_shared_memory("r", key, 8)  # noqa: E731
        fails(call, "400", "as shm_open takes it")
    fails(lambda: client.register_system_shared_memory("r", "/no-such-memory", 8), "400", "cannot be opened")
    with region(client, 64) as (name, _):
        link = f"link-{name}"
        os.symlink("/etc/hostname", f"/dev/shm/{link}")
        try:
            fails(lambda: client.register_system_shared_memory("r", link, 1), "400", "cannot be opened")
        finally:
            os.unlink(f"/dev/shm/{link}")
        call = lambda: client.register_system_shared_memory("r", f"/{name}", 65)  # noqa: E731
        fails(call, "400", "has 64 bytes, and the region ends at 65")
        client.unregister_system_shared_memory()
        assert not regions(api, client)


def cuda_shared_memory(api: ModuleType, client: Any) -> None:
    assert not client.get_cuda_shared_memory_status() or is_grpc(api)
    client.unregister_cuda_shared_memory()
    fails(lambda: client.register_cuda_shared_memory("r", b"AAAA", 0, 8), "501", "OpenCL opens no CUDA handles")


def log_settings(api: ModuleType, client: Any) -> None:
    def level(found: Any) -> int:
        return int(found.settings["log_verbose_level"].uint32_param if is_grpc(api) else found["log_verbose_level"])

    before = level(client.get_log_settings())
    assert level(client.update_log_settings({"log_verbose_level": 1, "log_info": True})) == 1
    assert level(client.get_log_settings()) == 1
    assert level(client.update_log_settings({"log_verbose_level": before})) == before
    fails(lambda: client.update_log_settings({"log_file": "/tmp/x"}), "501", "standard error")
    fails(lambda: client.update_log_settings({"log_error": False}), "501", "always logged")
    fails(lambda: client.update_log_settings({"log_verbos_level": 1}), "400", "did you mean 'log_verbose_level'")


def trace_settings(api: ModuleType, client: Any) -> None:
    def settings(found: Any) -> dict[str, Any]:
        told = {n: list(v.value) for n, v in found.settings.items()} if is_grpc(api) else found
        return {name: value[0] if isinstance(value, list) else value for name, value in told.items()}

    told = settings(client.get_trace_settings("sums"))
    assert told == settings(client.get_trace_settings())
    assert told["trace_mode"] == "opentelemetry"
    changed = client.update_trace_settings(settings={"trace_rate": "7", "trace_count": "5", "trace_level": ["OFF"]})
    assert [settings(changed)[f"trace_{n}"] for n in ("rate", "count", "level")] == ["7", "5", "OFF"]
    reset = {"trace_rate": None, "trace_count": None, "trace_level": None}
    assert settings(client.update_trace_settings(settings=reset)) == {**told, "trace_rate": "1", "trace_count": "-1"}
    fails(lambda: client.update_trace_settings(settings={"trace_file": "/tmp/x"}), "501", "exporter")
    fails(lambda: client.update_trace_settings(settings={"trace_level": ["TENSORS"]}), "501", "OFF or TIMESTAMPS")
    fails(lambda: client.update_trace_settings(settings={"trace_rate": "0"}), "400", "from 1 on")
    fails(lambda: client.update_trace_settings("sums", {"trace_rate": "2"}), "501", "for all models")
    fails(lambda: client.get_trace_settings("nothing"), "404", "nothing")


def body_made_by_the_client(api: ModuleType, client: Any) -> None:
    if is_grpc(api):
        return
    import http.client

    body, length = api.InferenceServerClient.generate_request_body(two(api))
    plain = http.client.HTTPConnection(client._parsed_url.host, client._parsed_url.port, timeout=60)
    plain.request("POST", "/v2/models/sums/infer", body, {"Inference-Header-Content-Length": str(length)})
    answer = plain.getresponse()
    told, found = answer.headers.get("Inference-Header-Content-Length"), answer.read()
    plain.close()
    result = api.InferenceServerClient.parse_response_body(found, header_length=int(told))
    np.testing.assert_allclose(result.as_numpy("sum"), A + B)


def configurations_that_are_refused(api: ModuleType, client: Any) -> None:
    load = lambda told: lambda: client.load_model("sums", config=json.dumps(told))  # noqa: E731
    fails(load({"backend": "python"}), "400", "'python' is not served here")
    fails(load({"ensemble_scheduling": {"step": []}}), "400", "ensemble_scheduling")
    path = {"parameters": {"precision": {"string_value": "/etc/passwd"}}}
    fails(load(path), "400", "a request names no file")


def sequences_are_refused(api: ModuleType, client: Any) -> None:
    fails(
        lambda: client.infer("sums", two(api), sequence_id=5, sequence_start=True), "501", "sequences are not offered"
    )
    fails(lambda: client.infer("sums", two(api), sequence_id="five"), "501", "send the state as an input")
    config = json.dumps({"sequence_batching": {}})
    fails(lambda: client.load_model("sums", config=config), "400", "sequence_batching is not offered")
    client.infer("sums", two(api), sequence_id=0)


Call = Callable[[ModuleType, Any], None]
CALLS: Sequence[Call] = (
    infer_bytes_of_any_kind, infer_no_rows, infer_with_headers_and_parameters, infer_many_at_once,
    stream_goes_on_after_an_error, shared_memory, shared_memory_of_bytes, shared_memory_that_does_not_fit,
    shared_memory_of_other_names, cuda_shared_memory, log_settings, trace_settings, body_made_by_the_client,
)  # fmt: skip
OF_DEVICES: Sequence[Call] = (
    infer_all_datatypes, configurations_that_are_refused, sequences_are_refused,
)  # fmt: skip
