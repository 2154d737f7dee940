"""`opalite generate` as a user types it: text, figures beside it, and a sentence for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import opalite
from opalite.cli import main

from ...helpers.decoders import llama
from ...helpers.words import make_folder

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
TEMPLATE = {"chat_template": "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"}


def run(*args: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(main, ["generate", *args], input=typed)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(make_folder(tmp_path / "writer", {"model.onnx": llama()}, tokenizer_config=TEMPLATE))


def test_text_and_figures(folder: str, tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    result = run(folder, "-p", "Once", "--max-tokens", "9", "--ignore-end", "-o", str(told))
    assert result.exit_code == 0, result.output
    text = opalite.generate(folder, "Once", max_tokens=9, ignore_end=True).text
    assert result.stdout == f"Once{text}\n"
    for word in ("prefill", "decode", "to the first token", "weights", "cache", "GB/s", "9 tokens, ended by length"):
        assert word in result.stderr
    written = json.loads(told.read_text())["texts"][0]
    assert (written["text"], written["reason"], len(written["tokens"])) == (text, "length", 9)
    metrics = written["metrics"]
    assert metrics["prompt_tokens"] == 4
    assert 0 < metrics["prefill_s"] <= metrics["first_token_s"]
    assert metrics["bandwidth_share"] > 0


def test_a_prompt_from_the_standard_input(folder: str) -> None:
    options = ("--max-tokens", "5", "--temperature", "0.9", "--top-k", "20", "--seed", "4", "--ignore-end")
    assert run(folder, *options, typed="Once\n").stdout == run(folder, "-p", "Once", *options).stdout


def test_a_chat_goes_on_from_line_to_line(folder: str) -> None:
    options = ("--chat", "--max-tokens", "4", "--ignore-end")
    result = run(folder, *options, typed="ab\n\ncd\n")
    assert result.exit_code == 0, result.output
    with opalite.Generator(folder) as writer:
        messages = [{"role": "user", "content": "ab"}]
        first = writer.generate(messages, max_tokens=4, ignore_end=True).text
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "cd"}]
        second = writer.generate(messages, max_tokens=4, ignore_end=True).text
    assert result.stdout == f"{first}\n{second}\n"
    assert "known already" in result.stderr
    assert run(folder, *options, "-p", "ab").stdout == f"{first}\n"


@pytest.mark.parametrize(
    "args, said",
    [
        (("--top-p", "2"), "top_p is a number from 0 to 1"),
        (("--file", "no.onnx"), "has no no.onnx; its models are model.onnx"),
        (("-i", "x"), "is not NAME=FILE"),
        (("-i", "x=nowhere.npy"), "nowhere.npy cannot be read"),
        (("-o", "nowhere/told.json"), "its folder does not exist"),
    ],
)
def test_what_is_wrong_is_a_sentence(folder: str, args: tuple[str, ...], said: str) -> None:
    result = run(folder, "-p", "Once", *args)
    assert result.exit_code == 1
    assert said in result.output
    assert "Traceback" not in result.output


def test_inputs_of_an_encoder_that_is_not_there(folder: str, tmp_path: Path) -> None:
    np.save(tmp_path / "sound.npy", np.zeros((1, 3), np.float32))
    result = run(folder, "-p", "Once", "-i", f"input_features={tmp_path / 'sound.npy'}")
    assert "has no encoder that could read input_features" in result.output
