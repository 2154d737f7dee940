"""The example's language model on the device: onnxruntime's tokens, and its script."""

from __future__ import annotations

import subprocess
import sys

import onnxruntime as ort
import pytest

import opalite
from opalite.cl.runtime import Runtime

from ...null.test_example_tiny_writer import FOLDER, MODEL, PROMPT, greedy

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")


def test_its_tokens_are_those_of_onnxruntime(rt: Runtime) -> None:
    reference = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    with opalite.Generator(MODEL.parent, device=rt.info.id) as writer:
        found = writer.generate(PROMPT)
        begin = writer.tokenizer.encode(PROMPT)
        assert list(found.tokens) == greedy(reference, begin, 128, 1.3)
        assert len(found.tokens) > 64
        assert found.reason == "end"
        plain = writer.generate("In the beginning", max_tokens=64, repetition_penalty=1.0, ignore_end=True)
        assert list(plain.tokens) == greedy(reference, writer.tokenizer.encode("In the beginning"), 64, 1.0)


def test_the_script(rt: Runtime) -> None:
    command = [sys.executable, str(FOLDER / "write.py"), "--tokens", "8", "--device", rt.info.id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{PROMPT} Behold")
    assert "tokens/s" in done.stdout
