"""KV caches that runs take and return: what a loop of code for onnxruntime does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..helpers import decoders
from ..helpers.decoders import feeds_of
from .idiom import differs, idiom

CPU = ["CPUExecutionProvider"]
Past = dict[str, Any]


def opened(ort: Any) -> tuple[Any, Past]:
    """A decoder and its empty caches."""
    session = ort.InferenceSession(decoders.llama(layers=1), providers=CPU)
    names = [i.name for i in session.get_inputs() if i.name.startswith("past")]
    return session, {n: np.zeros((1, decoders.SHARED, 0, decoders.SIZE), np.float32) for n in names}


def step(session: Any, past: Past, ids: list[int]) -> tuple[int, Past]:
    """The next token, and the caches."""
    held = next(iter(past.values())).shape[2]
    logits, *presents = session.run(None, {**feeds_of("llama", [ids], held), **past})
    return int(logits[0, -1].argmax()), dict(zip(past, presents, strict=True))


@idiom
def generate_with_caches(ort: Any, tmp: Path) -> Any:
    session, past = opened(ort)
    found, ids = [], [5, 3, 8]
    for _ in range(16):
        token, past = step(session, past, ids)
        found.append(token)
        ids = [token]
    return found, [a.shape for a in past.values()]


@idiom
def go_back_to_earlier_caches(ort: Any, tmp: Path) -> Any:
    session, past = opened(ort)
    _, first = step(session, past, [5, 3, 8])
    a, left = step(session, first, [7])
    b, right = step(session, first, [9])
    return a, b, step(session, left, [4])[0], step(session, right, [4])[0], step(session, first, [7])[0]


@idiom
def write_to_caches(ort: Any, tmp: Path) -> Any:
    session, past = opened(ort)
    _, past = step(session, past, [5, 3, 8])
    for array in past.values():
        array[:, 1] = 0
    found = []
    for token in (4, 9, 11):
        token, past = step(session, past, [token])
        found.append(token)
    return found


@idiom
def evict_from_caches(ort: Any, tmp: Path) -> Any:
    session, past = opened(ort)
    _, past = step(session, past, [5, 3, 8, 60, 2])
    found = []
    for token in (4, 9, 11):
        past = {n: np.concatenate([a[:, :, :1], a[:, :, 2:]], 2) for n, a in past.items()}
        token, past = step(session, past, [token])
        found.append(token)
    return found


@idiom
def bind_values_of_the_last_run(ort: Any, tmp: Path) -> Any:
    session, past = opened(ort)
    binding, found, ids, held = session.io_binding(), [], [5, 3, 8], 0
    values = {n: ort.OrtValue.ortvalue_from_numpy(a) for n, a in past.items()}
    for _ in range(8):
        for name, array in feeds_of("llama", [ids], held).items():
            binding.bind_cpu_input(name, array)
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        session.run_with_iobinding(binding)
        logits, *presents = binding.get_outputs()
        held += len(ids)
        ids = [int(logits.numpy()[0, -1].argmax())]
        found += ids
        values = dict(zip(values, presents, strict=True))
    return found, values["past_key_values.0.key"].shape()


@differs("arrays that a run was fed share memory with those that it returned, and become read-only")
def write_to_caches_that_went_on(ort: Any, tmp: Path) -> Any:
    session, past = opened(ort)
    _, first = step(session, past, [5, 3, 8])
    step(session, first, [7])
    return [a.flags.writeable for a in first.values()]


@differs("arrays of growing caches are views with gaps between heads")
def layout_of_caches(ort: Any, tmp: Path) -> Any:
    session, past = opened(ort)
    return [a.flags.c_contiguous for a in step(session, past, [5, 3, 8])[1].values()]
