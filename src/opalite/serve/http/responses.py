"""HTTP answers: inference results as JSON followed by binary data, errors, other JSON objects."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

from ..wire.datatypes import raw_from_array
from ..wire.infer_messages import InferResponse, Tensor
from ..wire.serve_errors import MethodWrong, ServeError
from .json_tensors import write_json
from .parse_infer_request import OutputEncoding
from .request_body import Headers

RawHeaders = list[tuple[bytes, bytes]]
Answer = tuple[int, RawHeaders, bytes]
"""Status, headers and body."""

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_HEADER_LENGTH = b"inference-header-content-length"
_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: slower than encoding a small answer
_MIN_COMPRESSED = 1024
"""Shorter answers are not compressed."""


def object_answer(found: Any, status: int = 200) -> Answer:
    """An answer with a JSON object or list."""
    return text_answer(dump(found), status)


def text_answer(body: bytes, status: int = 200) -> Answer:
    """An answer with a JSON text."""
    return status, [_JSON, (b"content-length", b"%d" % len(body))], body


def dump(found: Any) -> bytes:
    """Compact JSON, with NaN and Infinity as literals, as Triton's clients read them."""
    return _encode(found).encode()


def empty_answer() -> Answer:
    """Status 200 without a body."""
    return 200, [(b"content-length", b"0")], b""


def error_answer(failure: ServeError) -> Answer:
    """{"error": message} with the status of the failure, and Retry-After if it has a delay."""
    status, headers, body = object_answer({"error": str(failure)}, failure.status)
    if isinstance(failure, MethodWrong):
        headers.append((b"allow", failure.allowed.encode()))
    if failure.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(failure.retry_after_s)))
    return status, headers, body


def infer_answer(response: InferResponse, wanted: OutputEncoding, texts: Mapping[str, memoryview]) -> Answer:
    """The answer to an inference. texts: the JSON lists of outputs that are written already."""
    binary: list[Any] = []
    outputs = [_output(tensor, wanted, texts, binary) for tensor in response.outputs]
    head: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        head["id"] = response.id
    if response.parameters:
        head["parameters"] = dict(response.parameters)
    text = _with_texts(head, outputs, texts) if texts else dump({**head, "outputs": outputs})
    if not binary:
        return 200, [_JSON, (b"content-length", b"%d" % len(text))], text
    body = b"".join((text, *binary))
    length = b"%d" % len(text)
    return 200, [_BINARY, (_HEADER_LENGTH, length), (b"content-length", b"%d" % len(body))], body


def _with_texts(head: dict[str, Any], outputs: list[dict[str, Any]], texts: Mapping[str, memoryview]) -> bytes:
    """The JSON of an answer whose outputs' lists are written already."""
    pieces: list[bytes | memoryview] = [dump(head)[:-1], b',"outputs":[']
    for number, output in enumerate(outputs):
        pieces.append(b"," if number else b"")
        text = texts.get(output["name"])
        pieces += [dump(output)] if text is None else [dump(output)[:-1], b',"data":', text, b"}"]
    return b"".join((*pieces, b"]}"))


def _output(
    tensor: Tensor, wanted: OutputEncoding, texts: Mapping[str, memoryview], binary: list[Any]
) -> dict[str, Any]:
    """The JSON of an output; binary data is appended to `binary`."""
    described: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.array.shape)}
    if tensor.place is not None:
        described["parameters"] = dict(tensor.place)
    elif wanted.is_binary(tensor.name):
        raw = raw_from_array(tensor.datatype, tensor.array)
        binary.append(raw)
        described["parameters"] = {"binary_data_size": len(raw)}
    elif tensor.name not in texts:
        described["data"] = write_json(f"output '{tensor.name}'", tensor.datatype, tensor.array)
    return described


def encoding_for(headers: Headers, answer: Answer) -> bytes:
    """'gzip' or 'deflate' if Accept-Encoding names exactly that one and the answer is large enough, else ''.

    HTTP libraries send a list of encodings by default; compressing for them would cost more than the network.
    """
    encoding = headers.get(b"accept-encoding", b"").strip().lower()
    return encoding if encoding in (b"gzip", b"deflate") and len(answer[2]) >= _MIN_COMPRESSED else b""


def compress(answer: Answer, encoding: bytes) -> Answer:
    """The answer with its body compressed."""
    status, headers, body = answer
    body = gzip.compress(body, 1, mtime=0) if encoding == b"gzip" else zlib.compress(body, 1)
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    return status, [*kept, (b"content-encoding", encoding), (b"content-length", b"%d" % len(body))], body
