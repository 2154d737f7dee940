"""Answers as HTTP has them: the JSON object of an inference with binary data behind it, errors, and other objects."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from typing import Any

from ..wire.classification import largest
from ..wire.datatypes import raw_from_array
from ..wire.infer_messages import InferResponse, Tensor
from ..wire.serve_errors import ServeError
from .http_errors import MethodWrong
from .json_tensors import write_json
from .parse_infer_request import Wanted
from .request_body import Headers

RawHeaders = list[tuple[bytes, bytes]]
Answer = tuple[int, RawHeaders, bytes]
"""Status, headers and body."""

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_HEADER_LENGTH = b"inference-header-content-length"
_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: that takes longer than a small answer
_WORTH = 1024
"""Answers of fewer bytes are not compressed."""


def object_answer(found: Any, status: int = 200) -> Answer:
    """An answer that is a JSON object or list."""
    body = dump(found)
    return status, [_JSON, (b"content-length", b"%d" % len(body))], body


def dump(found: Any) -> bytes:
    """JSON without spaces, NaN and Infinity as such, as Triton's clients read them."""
    return _encode(found).encode()


def empty_answer() -> Answer:
    """An answer that says only that all went well."""
    return 200, [(b"content-length", b"0")], b""


def error_answer(failure: ServeError) -> Answer:
    """{"error": message} with the status of the failure, and when to try again where that helps."""
    status, headers, body = object_answer({"error": str(failure)}, failure.status)
    if isinstance(failure, MethodWrong):
        headers.append((b"allow", failure.allowed.encode()))
    if failure.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(failure.retry_after_s)))
    return status, headers, body


def infer_answer(response: InferResponse, wanted: Wanted, batched: bool) -> Answer:
    """The answer to an inference. batched: whether the first dimension is one of requests, for classes."""
    behind: list[Any] = []
    outputs = [_output(tensor, wanted, batched, behind) for tensor in response.outputs]
    head: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        head["id"] = response.id
    if response.parameters:
        head["parameters"] = dict(response.parameters)
    head["outputs"] = outputs
    text = dump(head)
    if not behind:
        return 200, [_JSON, (b"content-length", b"%d" % len(text))], text
    body = b"".join((text, *behind))
    length = b"%d" % len(text)
    return 200, [_BINARY, (_HEADER_LENGTH, length), (b"content-length", b"%d" % len(body))], body


def _output(tensor: Tensor, wanted: Wanted, batched: bool, behind: list[Any]) -> dict[str, Any]:
    """What the JSON object says of an output; its bytes go to `behind` where they are binary."""
    classes = wanted.classes(tensor.name)
    if classes:
        tensor = largest(tensor, classes, batched)
    told: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.array.shape)}
    if wanted.is_binary(tensor.name):
        raw = raw_from_array(tensor.datatype, tensor.array)
        behind.append(raw)
        told["parameters"] = {"binary_data_size": len(raw)}
    else:
        told["data"] = write_json(f"output '{tensor.name}'", tensor.datatype, tensor.array)
    return told


def encoding_for(headers: Headers, answer: Answer) -> bytes:
    """'gzip' or 'deflate' where the client asks for that one by name and the answer is large enough, else ''.

    What libraries send of their own accord, a list of encodings, is no such wish: it would cost more than the network.
    """
    encoding = headers.get(b"accept-encoding", b"").strip().lower()
    return encoding if encoding in (b"gzip", b"deflate") and len(answer[2]) >= _WORTH else b""


def compress(answer: Answer, encoding: bytes) -> Answer:
    """The answer with its body in that encoding."""
    status, headers, body = answer
    body = gzip.compress(body, 1, mtime=0) if encoding == b"gzip" else zlib.compress(body, 1)
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    return status, [*kept, (b"content-encoding", encoding), (b"content-length", b"%d" % len(body))], body
