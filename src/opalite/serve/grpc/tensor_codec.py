"""Conversion of gRPC messages to InferRequest, and of InferResponse to messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from ..proto.message_classes import ModelInferRequest, ModelInferResponse
from ..wire.client_limits import GrpcLimits
from ..wire.datatypes import array_from_raw, check_texts, count_of, dtype_of, raw_from_array
from ..wire.infer_messages import Array, InferRequest, InferResponse, Parameter, RequestedOutput, Tensor
from ..wire.serve_errors import Invalid, TooLarge, Unsupported
from .wire_format import field_of, split_fields

if TYPE_CHECKING:
    from ..engine.system_shared_memory import ClientRegions

_RAW_INPUTS, _RAW_OUTPUTS, _ANSWER = 7, 6, 2
"""Numbers of fields: raw_input_contents, raw_output_contents, infer_response."""
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_PARAMETERS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


def parse(kind: Any, raw: bytes | memoryview) -> Any:
    """A message of the class `kind`. Invalid for malformed bytes."""
    try:
        return kind.FromString(raw)
    except (DecodeError, ValueError) as e:
        raise Invalid(f"the request is no {kind.DESCRIPTOR.full_name}: {e}") from None


def read_infer_request(
    raw: memoryview, limits: GrpcLimits, trace: Mapping[str, str], regions: ClientRegions
) -> tuple[Any, InferRequest]:
    """The message of a ModelInferRequest without raw tensors, and its request, whose tensors are views of `raw`.

    Invalid, TooLarge, Unsupported.
    """
    head, raws = split_fields(raw, _RAW_INPUTS, limits.fields)
    if len(head) > limits.head_bytes:
        raise TooLarge(
            f"the message has {len(head)} bytes besides raw_input_contents, and {limits.head_bytes} are allowed; send "
            "tensors in raw_input_contents"
        )
    message = parse(ModelInferRequest, head)
    return message, _request(message, raws, limits, trace, regions)


def _request(
    message: Any, raws: Sequence[memoryview], limits: GrpcLimits, trace: Mapping[str, str], regions: ClientRegions
) -> InferRequest:
    """raws: the message's raw_input_contents."""
    if not message.model_name:
        raise Invalid("the request names no model: model_name is empty")
    for what, several in (("inputs", message.inputs), ("outputs", message.outputs)):
        if len(several) > limits.tensors:
            raise TooLarge(f"{len(several)} {what} in a request; at most {limits.tensors} are taken")
    return InferRequest(
        model=message.model_name,
        inputs=_inputs(message, raws, limits, regions),
        version=message.model_version,
        id=message.id,
        outputs=tuple(RequestedOutput(o.name, _tensor_parameters(o)) for o in message.outputs),
        parameters=read_parameters(message.parameters, "the request"),
        trace=trace,
    )


def write_infer_response(response: InferResponse) -> list[bytes | memoryview]:
    """The pieces of a ModelInferResponse; outputs as raw bytes."""
    message = ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    write_parameters(message.parameters, response.parameters)
    raws: list[bytes | memoryview] = []
    for tensor in response.outputs:
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
        content: list[bytes | memoryview] = []  # none in shared memory: clients find contents by the output's number
        if tensor.place is None:
            content.append(raw_from_array(tensor.datatype, tensor.array))
        else:
            write_parameters(output.parameters, tensor.place)
        raws += field_of(_RAW_OUTPUTS, content)
    return [message.SerializeToString(), *raws]


def write_stream_response(response: InferResponse) -> bytes:
    """A ModelStreamInferResponse with an answer."""
    return b"".join(field_of(_ANSWER, write_infer_response(response)))


def read_parameters(parameters: Mapping[str, Any], what: str) -> dict[str, Parameter]:
    """The values of InferParameters or ModelRepositoryParameters. Invalid without a value; Unsupported for bytes."""
    found: dict[str, Parameter] = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise Invalid(f"{what}: parameter '{name}' has no value")
        if choice == "bytes_param":
            raise Unsupported(f"{what}: parameter '{name}': files in a request are not taken; use the repository")
        value: Parameter = getattr(parameter, choice)
        if isinstance(value, float) and not math.isfinite(value):
            raise Invalid(f"{what}: parameter '{name}' is {value}")
        found[name] = value
    return found


def write_parameters(target: Any, parameters: Mapping[str, Parameter]) -> None:
    """Store values in a map of InferParameters."""
    for name, value in parameters.items():
        field = _PARAMETERS[type(value)]
        setattr(target[name], "uint64_param" if field == "int64_param" and int(value) >= 1 << 63 else field, value)


def read_config(parameters: Mapping[str, Parameter], limits: GrpcLimits) -> dict[str, Any] | None:
    """The JSON of the parameter `config` of a load request, None without it. Invalid, TooLarge."""
    for name in parameters:
        if name != "config":
            raise Invalid(f"a request to load takes the parameter 'config', got '{name}'")
    text = parameters.get("config")
    if text is None:
        return None
    if not isinstance(text, str):
        raise Invalid("the parameter 'config' is a model's configuration as JSON, in a text")
    if len(text) > limits.config_bytes:
        raise TooLarge(f"the parameter 'config' has {len(text)} characters; at most {limits.config_bytes} are taken")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Invalid(f"the parameter 'config' is no JSON: {e}") from None
    if not isinstance(config, dict):
        raise Invalid("the parameter 'config' is a JSON object")
    return config


def _inputs(message: Any, raw: Sequence[memoryview], limits: GrpcLimits, regions: ClientRegions) -> tuple[Tensor, ...]:
    shapes = [_shape(t.shape, f"input '{t.name}'", limits) for t in message.inputs]
    shared = [regions.read(f"input '{t.name}'", _tensor_parameters(t)) for t in message.inputs]
    sent = shared.count(None)
    if raw and len(raw) != sent:
        beside = "" if sent == len(shared) else " that are not in shared memory"
        raise Invalid(f"{len(raw)} raw_input_contents for {sent} inputs{beside}; one for each, or none at all")
    contents = iter(raw)
    found = []
    for t, shape, data in zip(message.inputs, shapes, shared, strict=True):
        what = f"input '{t.name}'"
        if data is None and not raw:
            array = _typed(t, shape, what)
        elif t.HasField("contents") and t.contents.ListFields():
            raise Invalid(f"{what} has contents beside raw_input_contents or shared memory; send one of them")
        else:
            array = array_from_raw(t.datatype, shape, next(contents) if data is None else data, what)
        found.append(Tensor(t.name, t.datatype, array))
    return tuple(found)


def _shape(given: Iterable[int], what: str, limits: GrpcLimits) -> tuple[int, ...]:
    shape = tuple(given)
    if len(shape) > limits.rank:
        raise TooLarge(f"{what} has {len(shape)} dimensions; at most {limits.rank} are taken")
    if (count := count_of(shape, what)) > limits.elements:
        raise TooLarge(f"{what} has {count} elements; at most {limits.elements} are taken")
    return shape


def _typed(tensor: Any, shape: Sequence[int], what: str) -> Array:
    """The elements in `contents`. Invalid unless they are in the field of the datatype only."""
    dtype = dtype_of(tensor.datatype)
    name = _CONTENTS.get(tensor.datatype)
    if name is None:
        raise Invalid(f"{what}: {tensor.datatype} has no field in contents; send it in raw_input_contents")
    for field, _ in tensor.contents.ListFields():
        if field.name != name:
            raise Invalid(f"{what}: {tensor.datatype} belongs into contents.{name}, got {field.name}")
    values = getattr(tensor.contents, name)
    count = count_of(shape, what)
    if len(values) != count:
        raise Invalid(f"{what}: shape {list(shape)} has {count} elements, but contents.{name} has {len(values)}")
    if tensor.datatype == "BYTES":
        check_texts(count, what)
        texts = np.empty(count, object)
        texts[:] = list(values)
        return texts.reshape(shape)
    wide = np.array(values, np.int64 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype)
    array = wide.astype(dtype, copy=False)
    if wide.dtype != dtype and not np.array_equal(wide, array):
        raise Invalid(f"{what}: a value in contents.{name} is none of {tensor.datatype}")
    return array.reshape(shape)


def _tensor_parameters(tensor: Any) -> dict[str, Parameter]:
    """Parameters of an input or requested output."""
    return read_parameters(tensor.parameters, f"tensor '{tensor.name}'") if tensor.parameters else {}
