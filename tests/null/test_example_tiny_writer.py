"""The example's language model: small, a folder that is complete, and it writes what its page shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
from opalite.llm.model_folder import open_folder

FOLDER = Path(__file__).parents[2] / "examples" / "tiny_writer"
MODEL = FOLDER / "model" / "model.onnx"
PROMPT = "And God said,"


def greedy(session: Any, begin: list[int], steps: int, penalty: float) -> list[int]:
    """Tokens by onnxruntime, caches fed back, until token 0; logits of tokens that occur are divided by `penalty`."""
    past = {i.name: np.zeros((1, 2, 0, 64), np.float32) for i in session.get_inputs() if i.name.startswith("past")}
    tokens, new = list(begin), list(begin)
    while len(tokens) < len(begin) + steps and tokens[-1] != 0:
        mask = np.ones((1, len(tokens)), np.int64)
        logits, *presents = session.run(None, {"input_ids": np.array([new]), "attention_mask": mask, **past})
        past = dict(zip(past, presents, strict=True))
        row, seen = logits[0, -1], sorted(set(tokens))
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
        new = [int(row.argmax())]
        tokens += new
    return tokens[len(begin) :]


def test_the_model_is_small() -> None:
    assert sum(p.stat().st_size for p in MODEL.parent.iterdir()) < 4_000_000
    kinds = {n.op_type for n in onnx.load(MODEL).graph.node}
    assert {"MatMulNBits", "GroupQueryAttention"} <= kinds
    assert "MatMul" not in kinds


def test_the_folder_tells_what_generation_asks() -> None:
    found = open_folder(MODEL.parent)
    assert found.decoder == MODEL
    assert found.end_tokens == {0}
    assert found.context_length == 512
    assert found.setting("repetition_penalty") == 1.3


def test_it_writes_what_its_page_shows() -> None:
    ort = pytest.importorskip("onnxruntime")
    tokenizers = pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL.parent / "tokenizer.json"))
    session = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    penalty = json.loads((MODEL.parent / "genai_config.json").read_text())["search"]["repetition_penalty"]
    begin = tokenizer.encode(PROMPT).ids
    tokens = greedy(session, begin, 128, penalty)
    shown = [line[2:] for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("> ")]
    assert tokenizer.decode(begin + tokens) == " ".join(shown)
    assert len(tokens) > 64
