"""Embeddings of OpenAI's API: requests for vectors of texts or tokens, and their answers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.embedding_model import COUNTS, VECTORS, cut
from ...wire.datatypes import is_unicode
from ...wire.infer_messages import Array, InferRequest, InferResponse, RequestedOutput, Tensor
from ..responses import dump
from .requests import COUNT, NAME, NO_UNICODE, are_tokens, read_fields, wrong

_MOST_TEXTS = 2048


@dataclass(frozen=True)
class EmbeddingRequest:
    """One request. texts, or tokens of each text. dimensions: numbers kept of each vector, None for all."""

    model: str
    texts: Sequence[str]
    tokens: Sequence[Sequence[int]] | None
    dimensions: int | None
    as_base64: bool

    def as_infer_request(self, trace: Mapping[str, str]) -> InferRequest:
        array = np.array([t.encode() for t in self.texts] or [b""], object)
        inputs = (Tensor("text_input", "BYTES", array),)
        outputs = (RequestedOutput(VECTORS), RequestedOutput(COUNTS))
        options = None if self.tokens is None else {COUNTS: self.tokens}
        return InferRequest(self.model, inputs, outputs=outputs, trace=trace, generation=options)

    async def answer(self, response: InferResponse) -> bytes:
        """The JSON of an answer. Vectors are written one by one, and other requests run in between.

        Invalid for more dimensions than the model's vectors have.
        """
        vectors, counts = (t.array for t in response.outputs)
        total = int(counts.sum())
        usage = {"prompt_tokens": total, "total_tokens": total}
        pieces = [dump({"object": "list", "model": self.model, "usage": usage})[:-1], b',"data":[']
        for number, vector in enumerate(cut(vectors, self.dimensions)):
            told = _encoded(vector) if self.as_base64 else vector.tolist()
            pieces += [b"," if number else b"", dump({"object": "embedding", "index": number, "embedding": told})]
            await asyncio.sleep(0)
        return b"".join((*pieces, b"]}"))


def read_embedding(body: Mapping[str, Any]) -> EmbeddingRequest:
    """A request for /v1/embeddings. Invalid."""
    fields = read_fields(body, _FIELDS)
    for name, kind in (("model", "GET /v1/models lists names"), ("input", "a text, or a list of texts")):
        if name not in fields:
            raise wrong(name, f"is missing: {kind}")
    texts, tokens = fields["input"]
    as_base64 = fields.get("encoding_format") == "base64"
    return EmbeddingRequest(fields["model"], texts, tokens, fields.get("dimensions"), as_base64)


def _input(name: str, value: Any) -> tuple[list[str], list[list[int]] | None]:
    """The texts, or their tokens."""
    several = value if isinstance(value, list) and value and not are_tokens(value) else [value]
    if len(several) > _MOST_TEXTS:
        raise wrong(name, f"has {len(several)} texts, and {_MOST_TEXTS} are allowed")
    if all(isinstance(v, str) for v in several):
        if not all(map(is_unicode, several)):
            raise wrong(name, NO_UNICODE)
        if empty := next((n for n, text in enumerate(several) if not text), None):
            raise wrong(name, f"is empty at {empty}: give some text")
        if several == [""]:
            raise wrong(name, "is empty: give some text")
        return several, None
    if all(isinstance(v, list) and v and are_tokens(v) for v in several):
        return [], several
    raise wrong(name, "is a text, a list of texts, a list of tokens, or a list of lists of tokens, none of them empty")


def _format(name: str, value: Any) -> str:
    if value not in ("float", "base64"):
        raise wrong(name, f"is float or base64, got {str(value)[:64]!r}")
    return str(value)


def _encoded(vector: Array) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


_FIELDS = {"model": NAME, "input": _input, "encoding_format": _format, "dimensions": COUNT, "user": None}
