"""llama.cpp as an engine of benchmarks/decoding.py, through the low-level API of llama-cpp-python.

Needs llama_cpp (LLAMA_CPP_LIB_PATH names the folder of a separately built library) and gguf, which writes the model
(benchmarks/models/llama_gguf.py). Logits of all prompt tokens are requested, as the ONNX model gives them. All else is
llama.cpp's default, including half caches.
"""

from __future__ import annotations

import ctypes
import time
from multiprocessing.connection import Connection

import numpy as np

ROOM = 1024  # positions of the cache


class Llama:
    """A loaded model with its cache."""

    def __init__(self, path: str, threads: int, words: int) -> None:
        import llama_cpp as api

        self._api, self._words, self.held = api, words, 0
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load '{path}'")
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = ROOM
        params.n_threads = params.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError("llama.cpp makes no context")
        self._batch = api.llama_batch_init(ROOM, 0, 1)

    def reset(self) -> None:
        """Empty the cache."""
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)
        self.held = 0

    def run(self, tokens: list[int]) -> int:
        """Reads `tokens`; returns the most likely next one."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, self.held + i, 1, 1
            batch.seq_id[i][0] = 0
        if code := self._api.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode gives {code}")
        self.held += len(tokens)
        row = self._api.llama_get_logits_ith(self._context, len(tokens) - 1)
        found = np.ctypeslib.as_array(ctypes.cast(row, ctypes.POINTER(ctypes.c_float)), (self._words,))
        return int(found.argmax())


def run_llama_cpp(pipe: Connection, path: str, threads: int, words: int) -> None:
    """The same protocol as the other engines of decoding.py."""
    engine = Llama(path, threads, words)
    pipe.send(None)
    token = 1
    for asked in iter(pipe.recv, None):
        if asked == "settle":
            pipe.send(None)
            continue
        started = time.perf_counter()
        if asked == "step":
            token = engine.run([token])
            pipe.send((1e3 * (time.perf_counter() - started), token))
            continue
        engine.reset()
        first = engine.run(list(asked))
        pipe.send((1e3 * (time.perf_counter() - started), first))
    pipe.send({})
