"""JSON of large tensors, read and written beside the event loop, which could answer nothing meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..engine.helper_process import HelperProcess
from ..wire.client_limits import HttpLimits
from ..wire.datatypes import array_from_raw, raw_from_array
from ..wire.infer_messages import InferRequest, InferResponse
from ..wire.serve_errors import TooLarge
from .json_tensors import write_json
from .parse_infer_request import OutputEncoding, read_json_input, read_object

_READ_HERE = 128 * 1024
"""Bytes of JSON that are read in the event loop."""
_WRITTEN_HERE = 16 * 1024
"""Elements, or bytes of texts, that are written in the event loop."""
_STEP = 1 << 16
_REST = 1 << 20
"""Most bytes of JSON besides the elements of inputs."""
_HERE = f"{__name__}:"


async def read_infer_object(helper: HelperProcess, data: memoryview, limits: HttpLimits) -> dict[str, Any]:
    """The JSON object of an inference request. In a large one `data` of inputs is arrays. Invalid, TooLarge."""
    if not _READ_HERE < len(data) <= limits.json_bytes:
        return read_object(data, limits)
    (text, tensors), pieces = await helper.call(f"{_HERE}decode", [data], asdict(limits))
    found: dict[str, Any] = json.loads(text)
    for (number, datatype, shape), piece in zip(tensors, pieces, strict=True):
        found["inputs"][number]["data"] = array_from_raw(datatype, shape, piece, f"input {number}")
    return found


async def write_outputs(
    helper: HelperProcess, request: InferRequest, response: InferResponse, wanted: OutputEncoding, limits: HttpLimits
) -> dict[str, memoryview]:
    """The JSON lists of large outputs, by name. TooLarge."""
    texts: dict[str, memoryview] = {}
    for tensor in response.outputs:
        if tensor.place is not None or wanted.is_binary(tensor.name):
            continue
        where, array = f"output '{tensor.name}'", tensor.array
        size = array.size if tensor.datatype != "BYTES" else sum(map(len, array.flat)) + array.size
        if size <= _WRITTEN_HERE:
            continue
        if 2 * size > limits.json_bytes:
            raise TooLarge(
                f"{where} has {size} elements, whose JSON would have more than the {limits.json_bytes} bytes that are "
                "allowed; ask for binary data (binary_data)"
            )
        raw = raw_from_array(tensor.datatype, array)
        _, (text,) = await helper.call(f"{_HERE}encode", [raw], [where, tensor.datatype, array.size])
        request.hold(len(text))
        texts[tensor.name] = text
    return texts


def decode(data: Sequence[memoryview], limits: dict[str, Any]) -> tuple[Any, list[memoryview]]:
    """In the helper: the JSON text of a request without its elements, and numbers, datatypes and shapes of inputs."""
    known = HttpLimits(**limits)
    found = read_object(data[0], known)
    tensors, pieces = [], []
    inputs = found.get("inputs")
    for number, item in enumerate(inputs if isinstance(inputs, list) else ()):
        if isinstance(item, dict) and isinstance(item.get("data"), list):
            tensor = read_json_input(number, item, known)
            item["data"] = []
            tensors.append([number, tensor.datatype, list(tensor.array.shape)])
            pieces.append(raw_from_array(tensor.datatype, tensor.array))
    text = json.dumps(found)
    if len(text) > _REST:
        raise TooLarge(f"the JSON has {len(text)} bytes besides the elements of inputs, and {_REST} are allowed")
    return (text, tensors), pieces


def encode(data: Sequence[memoryview], tensor: tuple[str, str, int]) -> tuple[Any, list[bytes]]:
    """In the helper: the JSON list of an output's elements. tensor: name, datatype, number of elements."""
    where, datatype, count = tensor
    array = array_from_raw(datatype, [count], data[0], where)
    steps = (array[at : at + _STEP] for at in range(0, count, _STEP))
    parts = [json.dumps(write_json(where, datatype, step), separators=(",", ":"))[1:-1].encode() for step in steps]
    return None, [b"[" + b",".join(parts) + b"]"]
