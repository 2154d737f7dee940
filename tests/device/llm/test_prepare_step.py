"""Steps are prepared while a prompt is read: the second token needs no plan that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

import opalite

from ...helpers.decoders import KINDS
from ...helpers.words import make_folder

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")


def plans(session: opalite.InferenceSession) -> int:
    found = session.stats()
    return found.plans_made + found.plans_loaded


@pytest.mark.parametrize("prompt", [[5, 9, 30, 2], [5]], ids=len)
@pytest.mark.parametrize("kind", ["llama", "fused"])
def test_steps_after_a_prompt_find_their_plans(prompt: list[int], kind: str, tmp_path: Path) -> None:
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": KINDS[kind]()})) as generator:
        decoder = generator._decoder
        decoder.read(prompt)
        assert decoder._preparation is not None
        decoder._preparation.wait()
        assert list(decoder.tokens) == prompt
        before = plans(decoder.session)
        for token in (7, 8, 9):
            decoder.read([token])
        assert plans(decoder.session) == before
