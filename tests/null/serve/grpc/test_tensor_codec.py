"""Requests from messages, and messages from responses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.serve.engine.system_shared_memory import SystemSharedMemory
from opalite.serve.grpc.tensor_codec import parse, read_config, read_infer_request, write_infer_response
from opalite.serve.proto.message_classes import ModelInferRequest
from opalite.serve.wire.client_limits import GrpcLimits
from opalite.serve.wire.infer_messages import InferRequest, InferResponse, Tensor
from opalite.serve.wire.serve_errors import Invalid, ServeError, TooLarge

REGIONS = SystemSharedMemory().of("127.0.0.1")
LIMITS = GrpcLimits(elements=1000, tensors=4, rank=8, config_bytes=100)


def message(datatype: str = "FP32", shape: tuple[int, ...] = (2,), raw: bytes | None = None, **contents: Any) -> Any:
    made = ModelInferRequest(model_name="m", model_version="3", id="7")
    tensor = made.inputs.add(name="x", datatype=datatype, shape=shape)
    if raw is not None:
        made.raw_input_contents.append(raw)
    for name, values in contents.items():
        getattr(tensor.contents, name).extend(values)
    return made


def read(made: Any, limits: GrpcLimits = LIMITS) -> InferRequest:
    return read_infer_request(memoryview(made.SerializeToString()), limits, {}, REGIONS)[1]


def test_names_parameters_and_outputs_arrive() -> None:
    made = message(raw=bytes(8))
    made.parameters["priority"].uint64_param = 2
    made.parameters["timeout"].int64_param = 5000
    made.parameters["share"].double_param = 0.5
    made.parameters["yes"].bool_param = True
    made.parameters["text"].string_param = "t"
    made.outputs.add(name="y").parameters["classification"].int64_param = 3
    trace = {"traceparent": "00-1-2-01"}
    _, request = read_infer_request(memoryview(made.SerializeToString()), LIMITS, trace, REGIONS)
    assert (request.model, request.version, request.id, request.priority) == ("m", "3", "7", 2)
    assert request.timeout_s == pytest.approx(0.005)
    assert request.parameters == {"priority": 2, "timeout": 5000, "share": 0.5, "yes": True, "text": "t"}
    assert [(o.name, o.parameters) for o in request.outputs] == [("y", {"classification": 3})]
    assert request.trace == {"traceparent": "00-1-2-01"}


@pytest.mark.parametrize(
    "datatype,field,values,expected",
    [
        ("BOOL", "bool_contents", [True, False], np.array([True, False])),
        ("INT8", "int_contents", [-128, 127], np.array([-128, 127], np.int8)),
        ("INT16", "int_contents", [-9, 300], np.array([-9, 300], np.int16)),
        ("INT32", "int_contents", [-(2**31), 1], np.array([-(2**31), 1], np.int32)),
        ("INT64", "int64_contents", [-(2**63), 1], np.array([-(2**63), 1], np.int64)),
        ("UINT8", "uint_contents", [0, 255], np.array([0, 255], np.uint8)),
        ("UINT16", "uint_contents", [0, 65535], np.array([0, 65535], np.uint16)),
        ("UINT32", "uint_contents", [0, 2**32 - 1], np.array([0, 2**32 - 1], np.uint32)),
        ("UINT64", "uint64_contents", [0, 2**64 - 1], np.array([0, 2**64 - 1], np.uint64)),
        ("FP32", "fp32_contents", [0.5, float("inf")], np.array([0.5, np.inf], np.float32)),
        ("FP64", "fp64_contents", [0.1, -2.5], np.array([0.1, -2.5])),
        ("BYTES", "bytes_contents", [b"", b"\xff\0"], np.array([b"", b"\xff\0"], object)),
    ],
)
def test_typed_contents(datatype: str, field: str, values: list[Any], expected: np.ndarray[Any, Any]) -> None:
    tensor = read(message(datatype, (2, 1), **{field: values})).inputs[0]
    assert tensor.array.dtype == expected.dtype
    assert tensor.array.shape == (2, 1)
    assert tensor.array.ravel().tolist() == expected.tolist()


def test_raw_contents_and_empty_tensors() -> None:
    assert read(message("FP32", (2,), np.array([1, -2], "<f4").tobytes())).inputs[0].array.tolist() == [1, -2]
    assert read(message("BYTES", (1,), b"\x02\0\0\0hi")).inputs[0].array.tolist() == [b"hi"]
    assert read(message("BF16", (1,), b"\x80\x3f")).inputs[0].array.astype(np.float32).tolist() == [1.0]
    assert read(message("FP32", (0, 5), b"")).inputs[0].array.shape == (0, 5)
    assert read(message("INT8", (0,))).inputs[0].array.shape == (0,)


@pytest.mark.parametrize(
    "made,kind,said",
    [
        (message("FP32", (2,), b"123"), Invalid, "input 'x'.*8 bytes"),
        (message("FP32", (-1,), b""), Invalid, "numbers from 0"),
        (message("FP32", (2**20, 2**20), b""), TooLarge, "at most 1000"),
        (message("FP32", (0, 2**62, 2**62), b""), Invalid, "larger than any memory"),
        (message("FP32", (1,) * 9, bytes(4)), TooLarge, "9 dimensions"),
        (message("FP31", (2,), b""), Invalid, "'FP31' is none of"),
        (message("FP16", (2,), fp32_contents=[1, 2]), Invalid, "FP16 has no field in contents"),
        (message("FP32", (2,), fp64_contents=[1, 2]), Invalid, "belongs into contents.fp32_contents, got fp64"),
        (message("FP32", (3,), fp32_contents=[1, 2]), Invalid, "has 3 elements, but contents.fp32_contents has 2"),
        (message("INT8", (1,), int_contents=[128]), Invalid, "none of INT8"),
        (message("UINT16", (1,), uint_contents=[65536]), Invalid, "none of UINT16"),
        (message("FP32", (2,), bytes(8), fp32_contents=[1, 2]), Invalid, "contents beside raw_input_contents"),
        (message("BYTES", (2,), b"\xff\xff\xff\xff????"), Invalid, "input 'x'"),
        (ModelInferRequest(model_name="m", raw_input_contents=[b"1"]), Invalid, "1 raw_input_contents for 0 inputs"),
        (ModelInferRequest(), Invalid, "names no model"),
        (ModelInferRequest(model_name="m", inputs=[{"name": "x"}] * 5), TooLarge, "5 inputs in a request; at most 4"),
    ],
)
def test_what_does_not_fit_is_an_error(made: Any, kind: type[ServeError], said: str) -> None:
    with pytest.raises(kind, match=said):
        read(made)


def test_parameters_that_mean_nothing_here_are_errors() -> None:
    made = message(raw=bytes(8))
    made.parameters["p"].SetInParent()
    with pytest.raises(Invalid, match="parameter 'p' has no value"):
        read(made)
    made.parameters["p"].double_param = float("nan")
    with pytest.raises(Invalid, match="parameter 'p' is nan"):
        read(made)


def test_bytes_that_are_no_message_are_an_error() -> None:
    with pytest.raises(Invalid, match=r"no inference\.ModelInferRequest"):
        parse(ModelInferRequest, b"\xff\xff\xff")


def test_a_response_is_written_raw_and_read_by_tritons_client() -> None:
    from tritonclient.grpc import InferResult, service_pb2

    texts = np.array([[b"a", b"bcd"]], object)
    outputs = (Tensor("y", "FP32", np.arange(6, dtype="f4").reshape(2, 3).T), Tensor("t", "BYTES", texts))
    parameters = {"b": True, "i": -3, "u": 2**63, "d": 0.5, "s": "x"}
    made = b"".join(write_infer_response(InferResponse("m", "1", "7", outputs, parameters)))
    theirs = service_pb2.ModelInferResponse.FromString(made)
    result = InferResult(theirs)
    assert result.as_numpy("y").tolist() == [[0, 3], [1, 4], [2, 5]]
    assert result.as_numpy("t").tolist() == texts.tolist()
    assert (theirs.model_name, theirs.model_version, theirs.id) == ("m", "1", "7")
    found = {name: getattr(p, p.WhichOneof("parameter_choice")) for name, p in theirs.parameters.items()}
    assert found == parameters


@pytest.mark.parametrize(
    "parameters,kind,said",
    [
        ({"config": "{"}, Invalid, "is no JSON"),
        ({"config": "[" * 90}, Invalid, "is no JSON"),
        ({"config": "[]"}, Invalid, "is a JSON object"),
        ({"config": 3}, Invalid, "in a text"),
        ({"config": " " * 101}, TooLarge, "101 characters"),
        ({"file:1/model.onnx": "x"}, Invalid, "takes the parameter 'config', got 'file:1/model.onnx'"),
    ],
)
def test_a_configuration_that_is_none(parameters: dict[str, Any], kind: type[ServeError], said: str) -> None:
    with pytest.raises(kind, match=said):
        read_config(parameters, LIMITS)
    assert read_config({}, LIMITS) is None
    assert read_config({"config": '{"max_batch_size": 4}'}, LIMITS) == {"max_batch_size": 4}
