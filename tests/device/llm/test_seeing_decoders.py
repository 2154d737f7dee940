"""Decoders that read vectors: of tokens, of pictures, and the caller's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.errors import InputError, ModelFileError

from ...helpers.decoders import KINDS
from ...helpers.seeing_decoders import PIXELS, parts, vectors_of
from ...helpers.words import make_folder
from .test_generator import PROMPT, greedy, open_reference, whole

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
IMAGE = 60
MADE = parts()
FILES = {"decoder_model_merged.onnx": MADE["decoder"], "embed_tokens.onnx": MADE["embed"]}
SEEING = {**FILES, "vision_encoder.onnx": MADE["vision"]}
PICTURE = np.random.default_rng(6).standard_normal((1, 3, PIXELS)).astype(np.float32)


def logits_of(vectors: Any) -> Any:
    """Return onnxruntime's logits of all vectors at once."""
    session = open_reference(MADE["decoder"])
    count = vectors.shape[1]
    feeds = {"inputs_embeds": vectors, "attention_mask": np.ones((1, count), np.int64)}
    feeds["position_ids"] = np.arange(count)[None]
    for i in session.get_inputs():
        if i.name.startswith("past"):
            feeds[i.name] = np.zeros([d if isinstance(d, int) else 1 if d == "batch_size" else 0 for d in i.shape], "f")
    return session.run(["logits"], feeds)[0]


@pytest.mark.parametrize("layout", ["optimum", "genai"])
def test_tokens_are_embedded_by_a_model_of_their_own(layout: str, tmp_path: Path) -> None:
    if layout == "optimum":
        folder = make_folder(tmp_path, {f"onnx/{n}": f for n, f in FILES.items()})
    else:
        told = {"decoder": {"filename": "text.onnx", "inputs": {"inputs_embeds": "inputs_embeds"}}}
        model = {"type": "phi3v", **told, "embedding": {"filename": "words.onnx"}}
        files = {"text.onnx": MADE["decoder"], "words.onnx": MADE["embed"]}
        folder = make_folder(tmp_path, files, genai_config={"model": model})
    with opalite.Generator(folder) as generator:
        begin = generator.tokenizer.encode(PROMPT)
        found = generator.generate(PROMPT, max_tokens=12, ignore_end=True)
        assert list(found.tokens) == greedy(whole("llama"), begin, 12)
        again = generator.generate(PROMPT + found.text[:3], max_tokens=4, ignore_end=True)
        assert again.metrics.reused_tokens >= len(PROMPT)
        several = generator.generate([PROMPT, "Twice"], max_tokens=6, ignore_end=True)
        assert several[0].tokens == found.tokens[:6]
        assert list(several[1].tokens) == greedy(whole("llama"), generator.tokenizer.encode("Twice"), 6)


def test_pictures_take_the_places_of_their_token(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, SEEING, config={"image_token_id": IMAGE})
    (seen,) = open_reference(MADE["vision"]).run(None, {"pixel_values": PICTURE})
    with opalite.Generator(folder) as generator:

        def after(tokens: list[int]) -> Any:
            vectors = vectors_of(MADE, tokens).copy()
            vectors[0, [i for i, t in enumerate(tokens) if t == IMAGE][:3]] = seen[0]
            return logits_of(vectors)

        want = greedy(after, [4, IMAGE, IMAGE, IMAGE, 9, 2], 8)
        given: dict[str, Any] = {"encoder_inputs": {"pixel_values": PICTURE}, "max_tokens": 8, "ignore_end": True}
        for prompt in ([4, IMAGE, 9, 2], [4, IMAGE, IMAGE, IMAGE, 9, 2]):
            assert list(generator.generate(prompt, **given).tokens) == want
        plain = generator.generate([4, 9, 2], max_tokens=8, ignore_end=True)
        assert list(plain.tokens) == greedy(lambda t: logits_of(vectors_of(MADE, t)), [4, 9, 2], 8)
        assert plain.metrics.reused_tokens == 0
        with pytest.raises(InputError, match="3 vectors, and the prompt has 0 tokens 60"):
            generator.generate([4, 9], **given)
        with pytest.raises(InputError, match="encoder of pictures reads 'pixel_values'"):
            generator.generate([IMAGE], encoder_inputs={"pixels": PICTURE})


def test_vectors_in_place_of_a_prompt(tmp_path: Path) -> None:
    with opalite.Generator(make_folder(tmp_path, FILES)) as generator:
        tokens = [7, 30, 2, 9]
        want = generator.generate(tokens, max_tokens=8, ignore_end=True, repetition_penalty=1.3).tokens
        vectors = vectors_of(MADE, tokens)
        for given in (vectors, vectors[0]):
            found = generator.generate("", inputs_embeds=given, max_tokens=8, ignore_end=True)
            assert list(found.tokens) == greedy(lambda t: logits_of(vectors_of(MADE, t)), tokens, 8)
        assert generator.generate(tokens, max_tokens=8, ignore_end=True, repetition_penalty=1.3).tokens == want
        for wrong in (vectors[..., :5], vectors[0, 0], np.zeros((2, *vectors.shape[1:]), "f"), vectors.astype(int)):
            with pytest.raises(InputError, match=r"inputs_embeds are floats \[positions, 64\]"):
                generator.generate("", inputs_embeds=wrong)
        with pytest.raises(InputError, match="give '' as the prompt"):
            generator.generate("a", inputs_embeds=vectors)
        with pytest.raises(InputError, match="no encoder that could read pixel_values"):
            generator.generate("a", encoder_inputs={"pixel_values": PICTURE})


def test_folders_that_lack_a_part(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"reads 'inputs_embeds', and .* no model that embeds tokens"):
        opalite.Generator(make_folder(tmp_path / "a", {"decoder_model_merged.onnx": MADE["decoder"]}))
    generator = opalite.Generator(make_folder(tmp_path / "b", {"model.onnx": KINDS["llama"]()}))
    with pytest.raises(InputError, match="reads tokens, no inputs_embeds"):
        generator.generate("", inputs_embeds=np.zeros((2, 64), np.float32))
    generator.close()
