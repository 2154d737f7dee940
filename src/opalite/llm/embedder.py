"""Embedder: a loaded encoder that turns texts into vectors of one size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import InputError
from ..run.api.session.inference_session import InferenceSession
from .embedding_folder import read_embedding_folder
from .encoder import Encoder
from .model_folder import local_path, open_folder
from .pooling import POOL, shorten, unit
from .tokenizer import Tokenizer

Array = np.ndarray[Any, Any]
_POOLED = "sentence_embedding"
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings", "hidden_states", "encoder_hidden_states")
_MOST_TEXTS, _MOST_TOKENS = 64, 16384
"""Texts and tokens of one run."""


class Embedder:
    """An embedding model on one OpenCL device. A context manager; not thread-safe.

    with opalite.Embedder("folder") as embedder:
        vectors = embedder.embed(["a text", "another"])

    model: a folder as sentence-transformers and optimum write it (tokenizer.json, model.onnx, 1_Pooling/config.json),
    an .onnx file in one, or `hf:OWNER/NAME`. file: the .onnx file if the folder has several. options: options of
    InferenceSession, such as device and precision.

    Raises ModelFileError for missing files, InputError for models without vectors of tokens and for steps of pooling
    that are not offered, ExtraError if the extra opalite-cl[llm] is not installed.
    """

    def __init__(self, model: str | os.PathLike[str], *, file: str | None = None, **options: Any) -> None:
        folder = open_folder(local_path(model, file), file)
        self.path: Path = folder.path
        self.settings = read_embedding_folder(folder)
        self.tokenizer = Tokenizer(folder)
        self.session = InferenceSession(folder.decoder, **options)
        self._encoder = Encoder(self.session, {})
        outputs = {a.name: a for a in self.session.get_outputs()}
        found = next((n for n in (_POOLED, *_TOKEN_OUTPUTS) if n in outputs), None)
        if found is None or not self._encoder.takes_text:
            raise InputError(
                f"{folder.decoder} embeds no texts: it needs the input input_ids and an output {_POOLED} or "
                f"{_TOKEN_OUTPUTS[0]}, and has {', '.join(a.name for a in self.session.get_inputs())} and "
                f"{', '.join(outputs)}"
            )
        self._output = found
        self._is_pooled = found == _POOLED
        padding = folder.config.get("pad_token_id")
        self._padding = padding if isinstance(padding, int) and padding >= 0 else 0

    @property
    def size(self) -> int:
        """The size of a vector."""
        dim = next(a for a in self.session.get_outputs() if a.name == self._output).shape[-1]
        if not isinstance(dim, int):
            dim = self.embed(["a"]).shape[-1]
        elif not self._is_pooled:
            dim *= len(self.settings.pooling)
        return int(dim)

    def embed(self, texts: str | Sequence[str | Sequence[int]], *, dimensions: int | None = None) -> Array:
        """Return a vector for each text: float32 [texts, size].

        texts: one text, several, or the tokens of each, special tokens included. dimensions: keep the first numbers of
        each vector (of models trained so, Matryoshka), again of length 1 if the model normalises.

        InputError for a text without tokens, or with more than the model reads.
        """
        return shorten(self.embed_tokens([texts] if isinstance(texts, str) else texts)[0], dimensions)

    def embed_tokens(self, texts: Sequence[str | Sequence[int]]) -> tuple[Array, list[int]]:
        """Return float32 vectors [texts, size], and the number of tokens of each text. InputError as `embed`."""
        tokens = [self._tokens(number, text) for number, text in enumerate(texts)]
        counts = [len(t) for t in tokens]
        vectors: list[Any] = [None] * len(tokens)
        for numbers in _batches(counts):
            for number, vector in zip(numbers, self._run([tokens[n] for n in numbers]), strict=True):
                vectors[number] = vector
        return (np.stack(vectors) if vectors else np.zeros((0, self.size), np.float32)), counts

    def close(self) -> None:
        """Free the device memory."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _tokens(self, number: int, text: str | Sequence[int]) -> list[int]:
        if isinstance(text, str):
            whole = self.settings.prompt + text
            tokens = self.tokenizer.encode(whole.lower() if self.settings.lower else whole)
        else:
            tokens = [int(t) for t in text]
            if wrong := [t for t in tokens if not 0 <= t < self.tokenizer.size]:
                most = self.tokenizer.size
                raise InputError(f"text {number} has the token {wrong[0]}; the vocabulary has {most} tokens, from 0 on")
        if not tokens:
            raise InputError(f"text {number} has no tokens: give some text")
        if self.settings.longest is not None and len(tokens) > self.settings.longest:
            raise InputError(
                f"text {number} has {len(tokens)} tokens, and the model reads {self.settings.longest}: shorten it, or "
                "embed its parts"
            )
        return tokens

    def _run(self, tokens: Sequence[Sequence[int]]) -> Array:
        """The vectors of texts that run together, padded on the right."""
        longest = max(map(len, tokens))
        ids = np.full((len(tokens), longest), self._padding, np.int64)
        mask = np.zeros(ids.shape, np.int64)
        for row, own in enumerate(tokens):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        found = self._encoder.run((), self._feeds(ids, mask))[self._output].astype(np.float32)
        vectors = found if self._is_pooled else np.concatenate([POOL[k](found, mask) for k in self.settings.pooling], 1)
        return unit(vectors) if self.settings.normalize else vectors

    def _feeds(self, ids: Array, mask: Array) -> dict[str, Array]:
        """Inputs by name, those of an encoder, and of a decoder whose caches are empty."""
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        known["position_ids"] = np.maximum(mask.cumsum(1) - 1, 0)
        feeds = {}
        for arg in self.session.get_inputs():
            assert arg.dtype is not None
            if arg.name in known:
                feeds[arg.name] = known[arg.name].astype(arg.dtype.np)
            elif arg.name.startswith("past"):
                shape = [len(ids) if axis == 0 else d if isinstance(d, int) else 0 for axis, d in enumerate(arg.shape)]
                feeds[arg.name] = np.zeros(shape, arg.dtype.np)
        return feeds


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of texts that run together, of similar lengths, so that little is padded."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: lengths[n]):
        if batch and (len(batch) == _MOST_TEXTS or (len(batch) + 1) * lengths[number] > _MOST_TOKENS):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
