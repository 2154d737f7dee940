"""Vectors of texts: padding and batches change nothing, poolings are those of their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from opalite.cl.runtime import Runtime
from opalite.llm import embedder as module
from opalite.llm.embedding_folder import POOLING

from ...helpers.decoders import llama
from ...helpers.embedders import make_embedder
from ...helpers.words import make_folder

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
TEXTS = ["a", "Once upon a time", "x y", "Once upon"]


@pytest.fixture(scope="module")
def embedder(rt: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[opalite.Embedder]:
    with opalite.Embedder(make_embedder(tmp_path_factory.mktemp("embedder")), device=rt.info.id) as made:
        yield made


def hidden(embedder: opalite.Embedder, text: str) -> Any:
    """Hidden states [tokens, size] of one text."""
    ids = np.array([embedder.tokenizer.encode(text)])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return embedder.session.run(None, feeds)[0][0].astype(np.float64)


def test_vectors_are_means_of_length_one(embedder: opalite.Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = np.stack([hidden(embedder, text).mean(0) for text in TEXTS])
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    found = embedder.embed(TEXTS)
    assert (found.shape, found.dtype) == ((len(TEXTS), embedder.size), np.float32)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_allclose(embedder.embed("x y"), wanted[2:3], atol=1e-5)
    np.testing.assert_allclose(embedder.embed([embedder.tokenizer.encode(t) for t in TEXTS]), wanted, atol=1e-5)
    monkeypatch.setattr(module, "_MOST_TOKENS", 16)
    np.testing.assert_allclose(embedder.embed(TEXTS), wanted, atol=1e-5)
    short = wanted[:, :8] / np.linalg.norm(wanted[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(embedder.embed(TEXTS, dimensions=8), short, atol=1e-5)
    assert embedder.embed([]).shape == (0, embedder.size)


def test_poolings(embedder: opalite.Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "settings", replace(embedder.settings, pooling=POOLING, normalize=False))
    found = embedder.embed(TEXTS)
    assert found.shape[1] == embedder.size == len(POOLING) * 64
    for text, vector in zip(TEXTS, found, strict=True):
        h = hidden(embedder, text)
        places = np.arange(1, len(h) + 1)[:, None]
        weighted = (h * places).sum(0) / places.sum()
        wanted = [h[0], h.max(0), h.mean(0), h.sum(0) / len(h) ** 0.5, weighted, h[-1]]
        np.testing.assert_allclose(vector, np.concatenate(wanted), atol=2e-5)


def test_prompts_and_letters(embedder: opalite.Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = embedder.embed(["query: once"])
    monkeypatch.setattr(embedder, "settings", replace(embedder.settings, prompt="Query: ", lower=True))
    np.testing.assert_allclose(embedder.embed(["Once"]), plain, atol=1e-6)


@pytest.mark.parametrize(
    "texts, how, kind, words",
    [
        (["x" * 25], {}, opalite.InputError, "text 0 has 25 tokens, and the model reads 24"),
        (["x", ""], {}, opalite.InputError, "text 1 has no tokens"),
        ([[5, 97]], {}, opalite.InputError, "text 0 has the token 97; the vocabulary has 97"),
        ([[-1]], {}, opalite.InputError, "the token -1"),
        (["x"], {"dimensions": 65}, opalite.OptionError, "from 1 to 64"),
        (["x"], {"dimensions": 0}, opalite.OptionError, "from 1 to 64"),
    ],
)
def test_what_cannot_be_embedded(embedder: opalite.Embedder, texts: Any, how: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        embedder.embed(texts, **how)


def test_a_decoder_with_empty_caches(rt: Runtime, tmp_path: Path) -> None:
    """As embedding models of decoders are exported: the last token's state."""
    model = onnx.load_from_string(llama(1))
    next(o for o in model.graph.output if o.name == "logits").name = "last_hidden_state"
    for node in model.graph.node:
        node.output[:] = ["last_hidden_state" if name == "logits" else name for name in node.output]
    pooling = {"pooling_mode": "lasttoken"}
    folder = make_embedder(tmp_path / "e", ("Transformer", "Pooling"), pooling)
    (folder / "onnx" / "model.onnx").write_bytes(model.SerializeToString())
    writer = make_folder(tmp_path / "w", {"model.onnx": llama(1)})
    with opalite.Embedder(folder, device=rt.info.id) as made, opalite.Generator(writer, device=rt.info.id) as generator:
        found = made.embed(["Once upon", "x"])
        for text, vector in zip(["Once upon", "x"], found, strict=True):
            top = generator.generate(text, max_tokens=1, ignore_end=True).tokens[0]
            assert int(vector.argmax()) == top


def test_models_without_vectors(rt: Runtime, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {"model.onnx": llama(1)})
    with pytest.raises(opalite.InputError, match="embeds no texts: it needs the input input_ids and an output"):
        opalite.Embedder(folder, device=rt.info.id)
