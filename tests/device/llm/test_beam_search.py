"""Beam search: the texts of a plain search on onnxruntime's logits, with few bytes copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.errors import OptionError

from ...helpers.decoders import KINDS
from ...helpers.words import make_folder
from .test_generator import PROMPT, whole

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
STEPS = 14
ENDS = [17, 40, 3]
Found = list[tuple[float, tuple[int, ...]]]


def search(kind: str, prompt: list[int], count: int, power: float, ends: list[int]) -> tuple[int, ...]:
    """The best text, with all logits of each beam computed anew."""
    logits_of = whole(kind)
    beams: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: Found = []

    def end(tokens: tuple[int, ...], score: float) -> None:
        ended[:] = sorted([*ended, (score / len(tokens) ** power, tokens)], reverse=True)[:count]

    while len(beams[0][0]) < STEPS:
        length = len(beams[0][0])
        if length and len(ended) == count and ended[-1][0] >= max(s for _, s in beams) / length**power:
            break
        found: list[tuple[float, int, int]] = []
        for number, (tokens, score) in enumerate(beams):
            row = np.array(logits_of(prompt + list(tokens))[0, -1], np.float64)
            row -= row.max() + np.log(np.exp(row - row.max()).sum())
            found += [(score + row[t], -number, int(t)) for t in np.argsort(-row)[: 2 * count]]
        now = []
        for rank, (score, number, token) in enumerate(sorted(found, reverse=True)):
            tokens = (*beams[-number][0], token)
            if token not in ends:
                now.append((tokens, score))
            elif rank < count:
                end(tokens, score)
            if len(now) == count:
                break
        beams = now
    for tokens, score in beams:
        end(tokens, score)
    return max(ended)[1]


@pytest.mark.parametrize("kind, ends", [("llama", ENDS), ("grouped", []), ("gpt2", ENDS)])
def test_the_most_probable_text(kind: str, ends: list[int], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"generation_config": {"eos_token_id": ends}} if ends else {}
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": KINDS[kind]()}, **settings)) as generator:
        begin = generator.tokenizer.encode(PROMPT)
        for beams, power in ((2, 1.0), (3, 0.6), (5, 1.5)):
            found = generator.generate(PROMPT, beams=beams, length_penalty=power, max_tokens=STEPS)
            assert found.tokens == search(kind, begin, beams, power, ends)
            assert found.reason == ("end" if found.tokens[-1] in ends else "length")
        several = generator.generate([PROMPT, "ab"], beams=3, length_penalty=0.6, max_tokens=STEPS)
        assert [t.tokens for t in several] == [
            search(kind, generator.tokenizer.encode(p), 3, 0.6, ends) for p in (PROMPT, "ab")
        ]


def test_a_parent_that_goes_on_alone_is_not_copied(tmp_path: Path) -> None:
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": KINDS["llama"]()})) as generator:
        found = generator.generate(PROMPT, beams=2, max_tokens=STEPS)
        state = generator._decoder.state
        assert state is not None
        position = sum(v.nbytes for v in state.arrays().values()) // len(state)
        every = sum(2 * position * (len(PROMPT) + step) for step in range(1, STEPS))
        assert 0 < found.metrics.moved_bytes < every / 2


def test_what_a_search_does_not_take(tmp_path: Path) -> None:
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": KINDS["llama"](layers=1)})) as generator:
        with pytest.raises(OptionError, match="leave out temperature and stop"):
            generator.generate("a", beams=2, temperature=0.5)
        with pytest.raises(OptionError, match="leave out n or beams"):
            generator.generate("a", beams=2, n=2)
        with pytest.raises(OptionError, match="beams is a number from 1 to 64"):
            generator.generate("a", beams=0)
