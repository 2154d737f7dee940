"""Parser of HTTP inference requests: a JSON object followed by the binary data of tensors."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..wire.client_limits import HttpLimits
from ..wire.datatypes import array_from_raw, dtype_of
from ..wire.infer_messages import InferRequest, Parameter, RequestedOutput, Tensor
from ..wire.serve_errors import Invalid, TooLarge
from .json_tensors import read_json

if TYPE_CHECKING:
    from ..engine.system_shared_memory import ClientRegions


@dataclass(frozen=True)
class OutputEncoding:
    """The requested form of outputs. binary: default of all outputs. outputs: parameters of each."""

    binary: bool = False
    outputs: Mapping[str, Mapping[str, Parameter]] = field(default_factory=dict)

    def is_binary(self, name: str) -> bool:
        """Whether output `name` is sent as binary data."""
        own = self.outputs.get(name, {}).get("binary_data")
        return self.binary if own is None else bool(own)


def read_object(data: bytes | memoryview, limits: HttpLimits) -> dict[str, Any]:
    """Parse a JSON object; {} for empty data. Invalid, TooLarge."""
    if len(data) > limits.json_bytes:
        raise TooLarge(
            f"the JSON has {len(data)} bytes, and {limits.json_bytes} are allowed; send tensors as binary data"
        )
    if not data:
        return {}
    try:
        found = json.loads(bytes(data))
    except RecursionError:
        raise Invalid("the JSON nests too deeply") from None
    except UnicodeDecodeError as e:
        raise Invalid(f"the body is no JSON, which is UTF-8 ({e}); send BYTES of other kinds as binary data") from None
    except ValueError as e:
        raise Invalid(f"the body is no JSON: {e}") from None
    if not isinstance(found, dict):
        raise Invalid("the JSON is no object")
    return found


def split_body(body: memoryview, header_length: int | None) -> tuple[memoryview, memoryview]:
    """The JSON of a body, and its binary data. header_length: bytes of the JSON, None for the whole body. Invalid."""
    if header_length is not None and header_length > len(body):
        raise Invalid(f"Inference-Header-Content-Length says {header_length} bytes, and the body has {len(body)}")
    end = len(body) if header_length is None else header_length
    return body[:end], body[end:]


def read_request(
    model: str,
    version: str,
    found: Mapping[str, Any],
    rest: memoryview,
    limits: HttpLimits,
    trace: Mapping[str, str],
    regions: ClientRegions,
) -> tuple[InferRequest, OutputEncoding]:
    """Read the object of a request, whose `data` are lists or arrays; binary tensors are views of `rest`.

    regions: may hold inputs. Invalid for contradictions, TooLarge for too many tensors or elements, Unsupported for
    datatypes without a JSON form.
    """
    parameters = read_parameters("the request", found)
    wanted = OutputEncoding(_flag("the request", parameters, "binary_data_output"), _outputs(found, limits))
    inputs = []
    for number, item in enumerate(_list(found, "inputs", limits)):
        tensor, used = _input(number, item, rest, limits, regions)
        inputs.append(tensor)
        rest = rest[used:]
    if len({tensor.name for tensor in inputs}) != max(len(inputs), 1):
        raise Invalid("an input is given twice" if inputs else "the request has no 'inputs'")
    if len(rest):
        raise Invalid(f"{len(rest)} bytes are left after the binary data of the inputs")
    identity = found.get("id", "")
    if not isinstance(identity, str):
        raise Invalid("'id' is no text")
    asked = tuple(RequestedOutput(name, own) for name, own in wanted.outputs.items())
    kept = {name: value for name, value in parameters.items() if name != "binary_data_output"}
    return InferRequest(model, tuple(inputs), version, identity, asked, kept, trace), wanted


def read_parameters(where: str, found: Mapping[str, Any]) -> dict[str, Parameter]:
    """The object 'parameters': booleans, numbers and texts. Invalid."""
    parameters = found.get("parameters", {})
    if not isinstance(parameters, dict):
        raise Invalid(f"{where}: 'parameters' is no object")
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str):
            raise Invalid(f"{where}: parameter '{name[:64]}' is no boolean, number or text")
    return parameters


def _outputs(found: Mapping[str, Any], limits: HttpLimits) -> dict[str, Mapping[str, Parameter]]:
    outputs: dict[str, Mapping[str, Parameter]] = {}
    for number, item in enumerate(_list(found, "outputs", limits)):
        name = _name(f"output {number}", item)
        where = f"output '{name}'"
        parameters = read_parameters(where, item)
        if name in outputs:
            raise Invalid(f"{where} is asked for twice")
        if "binary_data" in parameters:
            _flag(where, parameters, "binary_data")
        outputs[name] = parameters
    return outputs


def _input(number: int, item: Any, rest: memoryview, limits: HttpLimits, regions: ClientRegions) -> tuple[Tensor, int]:
    """The tensor described by `item`, and its number of bytes at the start of `rest`."""
    name, datatype, shape = _description(number, item, limits)
    where = f"input '{name}'"
    parameters = read_parameters(where, item)
    size = parameters.get("binary_data_size")
    shared = regions.read(where, parameters)
    if shared is not None:
        if size is not None or "data" in item:
            raise Invalid(f"{where} has 'data' or 'binary_data_size' beside a region of shared memory; send one")
        return Tensor(name, datatype, array_from_raw(datatype, shape, shared, where)), 0
    if size is None:
        if "data" not in item:
            raise Invalid(f"{where} has neither 'data' nor the parameter 'binary_data_size'")
        data = item["data"]
        is_read = isinstance(data, np.ndarray)
        return Tensor(name, datatype, data if is_read else read_json(where, datatype, shape, data)), 0
    if "data" in item:
        raise Invalid(f"{where} has both 'data' and the parameter 'binary_data_size'")
    if not _is_count(size):
        raise Invalid(f"{where}: 'binary_data_size' is {_short(size)}, and a number of bytes is expected")
    used = int(size)
    if used > len(rest):
        raise Invalid(f"{where}: 'binary_data_size' is {used}, and {len(rest)} bytes of the body are left")
    return Tensor(name, datatype, array_from_raw(datatype, shape, rest[:used], where)), used


def read_json_input(number: int, item: Any, limits: HttpLimits) -> Tensor:
    """The tensor of an input with `data`. Invalid, TooLarge."""
    name, datatype, shape = _description(number, item, limits)
    return Tensor(name, datatype, read_json(f"input '{name}'", datatype, shape, item["data"]))


def _description(number: int, item: Any, limits: HttpLimits) -> tuple[str, str, tuple[int, ...]]:
    """Name, datatype and shape of an input."""
    name = _name(f"input {number}", item)
    where = f"input '{name}'"
    datatype = item.get("datatype")
    if not isinstance(datatype, str):
        raise Invalid(f"{where}: 'datatype' is {_short(datatype)}, and a name such as FP32 is expected")
    dtype_of(datatype)
    return name, datatype, read_shape(where, item.get("shape"), limits)


def read_shape(where: str, shape: Any, limits: HttpLimits) -> tuple[int, ...]:
    """A shape of integers from 0 on, within the limits. Invalid, TooLarge."""
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise Invalid(f"{where}: 'shape' is {_short(shape)}, and a list of whole numbers from 0 on is expected")
    if len(shape) > limits.rank:
        raise Invalid(f"{where}: 'shape' has {len(shape)} dimensions, and {limits.rank} are allowed")
    # Zeros are ignored: NumPy refuses large sizes beside them.
    if math.prod(d for d in shape if d) > limits.elements:
        raise TooLarge(f"{where}: shape {_short(shape)} has more than the {limits.elements} elements that are allowed")
    return tuple(shape)


def _list(found: Mapping[str, Any], key: str, limits: HttpLimits) -> list[Any]:
    items = found.get(key, [])
    if not isinstance(items, list):
        raise Invalid(f"'{key}' is no list")
    if len(items) > limits.tensors:
        raise TooLarge(f"'{key}' has {len(items)} tensors, and {limits.tensors} are allowed")
    return items


def _name(where: str, item: Any) -> str:
    if not isinstance(item, dict):
        raise Invalid(f"{where} is no object")
    name = item.get("name")
    if not isinstance(name, str) or not name or len(name) > 1024:
        raise Invalid(f"{where} has no 'name', which is a text of 1024 characters at most")
    return name


def _flag(where: str, parameters: Mapping[str, Parameter], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise Invalid(f"{where}: '{name}' is {_short(value)}, and true or false is expected")
    return value


def _is_count(value: Any) -> bool:
    """Whether `value` is an integer from 0 to 2^63 - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _short(value: Any) -> str:
    return reprlib.repr(value)
