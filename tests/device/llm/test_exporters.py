"""Folders written by optimum and onnxruntime-genai, with random weights: 64 greedy tokens equal onnxruntime's.

Skipped where the exporters are not installed: pip install optimum-onnx transformers torch; onnxruntime-genai.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite

from ...helpers.decoders import WORDS
from ...helpers.words import make_folder
from .test_generator import open_reference

pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
STEPS, PROMPT, HEAD = 64, [5, 30, 2, 77, 41], 16
ROUNDED = 0.01  # of the largest score, by which rounded rows may move one
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
GATED = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 128}
KINDS: dict[str, dict[str, Any]] = {
    "Llama": GATED,
    "Qwen2": GATED,
    "Mistral": {**GATED, "sliding_window": 32},
    "Gemma": {**GATED, "num_key_value_heads": 1, "head_dim": HEAD},
    "Qwen3": {**GATED, "head_dim": HEAD},
    "Qwen3Moe": {
        **GATED,
        "head_dim": HEAD,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    },
    "Phi": {**SIZES, "intermediate_size": 128},
    "GPTNeoX": {**SIZES, "intermediate_size": 128},
    "Bloom": {"vocab_size": WORDS, "hidden_size": 64, "n_layer": 2, "n_head": 4},
}


def network(kind: str) -> Any:
    """A decoder with clearly separated scores."""
    import torch

    torch.manual_seed(0)
    made = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**KINDS[kind])).eval()
    for weight in made.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=1.2 / weight.shape[-1] ** 0.5)
    return made


def by_onnxruntime(path: Path) -> tuple[list[int], list[float]]:
    """Return greedy tokens, and the margin of each score over the next best, relative to the largest score."""
    session = open_reference(str(path))  # type: ignore[arg-type]
    inputs, outputs = session.get_inputs(), [o.name for o in session.get_outputs()]
    past = {}
    for i in inputs:
        if i.name.startswith("past"):
            sizes = (1, i.shape[1], 0, i.shape[3] if isinstance(i.shape[3], int) else HEAD)
            past[i.name] = np.zeros(sizes, np.float32)
    tokens, leads, new, held = list[int](), list[float](), PROMPT, 0
    while len(tokens) < STEPS:
        held += len(new)
        feeds = {"input_ids": np.array([new]), "attention_mask": np.ones((1, held), np.int64)}
        if any(i.name == "position_ids" for i in inputs):
            feeds["position_ids"] = np.arange(held - len(new), held)[None]
        found = dict(zip(outputs, session.run(None, {**feeds, **past}), strict=True))
        past = {n: found[n.replace("past_key_values", "present")] for n in past}
        scores = found["logits"][0, -1]
        second, first = np.sort(scores)[-2:]
        leads.append(float((first - second) / np.abs(scores).max()))
        new = [int(scores.argmax())]
        tokens += new
    return tokens, leads


def check(folder: Path, rounds: bool = False) -> None:
    """Compare tokens; rounds: products quantise rows to 8 bits, so a tie depends on a float's last bit."""
    make_folder(folder, {})
    with opalite.Generator(folder) as generator:
        found = generator.generate(PROMPT, max_tokens=STEPS, ignore_end=True, temperature=0)
        state = generator._decoder._state
        assert state is not None
        assert state.copies == ""
    tokens, leads = by_onnxruntime(folder / "model.onnx")
    parted = next((i for i, pair in enumerate(zip(found.tokens, tokens, strict=True)) if pair[0] != pair[1]), STEPS)
    assert parted == STEPS or (rounds and leads[parted] <= ROUNDED), (parted, leads[parted])
    with opalite.Generator(folder, cache="int8") as generator:
        assert generator.generate(PROMPT, max_tokens=STEPS, ignore_end=True, temperature=0).tokens[0] == found.tokens[0]


@pytest.mark.parametrize("kind", KINDS)
def test_optimum(kind: str, tmp_path: Path) -> None:
    exporter = pytest.importorskip("optimum.exporters.onnx", reason="optimum-onnx is not installed")
    task = "text-generation-with-past"
    exporter.onnx_export_from_model(network(kind), output=tmp_path, task=task, do_validation=False)
    check(tmp_path)


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Mistral", "Gemma", "Qwen3"])
@pytest.mark.parametrize("precision", ["fp32", "int4, level 0", "int4, level 1", "int4, level 4"])
def test_genai(kind: str, precision: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")
    hub, (width, _, level) = tmp_path / "hub", precision.partition(", level ")
    network(kind).save_pretrained(hub)
    make_folder(hub, {})
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(hub / "tokenizer.json"), eos_token="<end>")
    words.save_pretrained(hub)
    places = ["-i", str(hub), "-o", str(tmp_path / "model"), "-c", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *places, "-p", width, "-e", "cpu"]
    command += ["--extra_options", f"accuracy_level={level}"] if level else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    check(tmp_path / "model", level == "4")
