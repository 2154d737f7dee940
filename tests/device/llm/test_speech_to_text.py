"""Audio input of encoder-decoders: wav file to tokens, windows, and language detection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import opalite
from opalite.cli import main
from opalite.errors import InputError
from opalite.llm.audio import Spectrogram

from ...helpers import encoder_decoders
from ...helpers.decoders import KINDS
from ...helpers.words import END, make_folder
from ...null.llm.test_audio import write
from .test_generator import SEPARATE, greedy, open_reference

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
HEARS = Spectrogram(feature_size=encoder_decoders.FEATURES, chunk_length=1)
SOUND = np.random.default_rng(8).uniform(-0.5, 0.5, 40000).astype(np.float32)


def folder_at(
    path: Path, special: Mapping[str, int] | None = None, config: Mapping[str, Any] | None = None, **generation: Any
) -> Path:
    files = {
        "encoder_model.onnx": encoder_decoders.encoder(reads_text=False, hears=True),
        "decoder_model_merged.onnx": encoder_decoders.merged(),
    }
    told = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": HEARS.feature_size, "chunk_length": 1}
    return make_folder(
        path,
        files,
        special,
        config={"decoder_start_token_id": END} if config is None else config,
        preprocessor_config=told,
        generation_config=generation,
    )


def logits_after(window: Any, tokens: list[int]) -> Any:
    """Return onnxruntime's logits."""
    encoder = open_reference(encoder_decoders.encoder(reads_text=False, hears=True))
    (hidden,) = encoder.run(None, {"input_features": HEARS.features(window)[None]})
    held = {"encoder_hidden_states": hidden, "encoder_attention_mask": np.ones(hidden.shape[:2], np.int64)}
    decoder = open_reference(SEPARATE["decoder_model.onnx"])
    return decoder.run(["logits"], {"input_ids": np.array([tokens]), **held})[0]


def test_a_wav_file_becomes_text(tmp_path: Path) -> None:
    path = write(tmp_path / "short.wav", SOUND[:9000, None], 4)
    with opalite.Generator(folder_at(tmp_path / "model")) as made:
        found = made.generate("", audio=path, max_tokens=8, ignore_end=True)
        assert list(found.tokens) == greedy(lambda tokens: logits_after(SOUND[:9000], tokens), [END], 8)
        same = made.generate("", audio=(SOUND[:9000], 16000), max_tokens=8, ignore_end=True)
        assert same.tokens == found.tokens
        windows = made.windows(SOUND)
        assert [w.size for w in windows] == [16000, 16000, 8000]
        with pytest.raises(InputError, match=r"lasts 2.5 s, and the encoder reads 1 s at once"):
            made.stream("", audio=SOUND)


def test_the_language_is_what_the_decoder_hears(tmp_path: Path) -> None:
    languages = {"<|en|>": 40, "<|de|>": 41, "<|fr|>": 42, "<|la|>": 43}
    told = {"lang_to_id": languages, "task_to_id": {"transcribe": 5, "translate": 6}, "no_timestamps_token_id": 7}
    row = logits_after(SOUND[:16000], [END])[0, -1]
    load_samples = max(languages.values(), key=lambda n: float(row[n]))
    with opalite.Generator(folder_at(tmp_path, **told)) as made:
        found = made.generate("", audio=SOUND[:16000], max_tokens=6, ignore_end=True)
        begin = [END, load_samples, 5, 7]
        assert list(found.tokens) == greedy(lambda tokens: logits_after(SOUND[:16000], tokens), begin, 6)
        other = made.generate([42, 6], audio=SOUND[:16000], max_tokens=6, ignore_end=True)
        assert list(other.tokens) == greedy(lambda tokens: logits_after(SOUND[:16000], tokens), [END, 42, 6], 6)


def test_the_tokenizer_names_the_start_where_no_configuration_does(tmp_path: Path) -> None:
    special = {"<|startoftranscript|>": 30, "<|en|>": 40, "<|yue|>": 41, "<|transcribe|>": 5, "<|notimestamps|>": 7}
    window = SOUND[:16000]

    def after(begin: list[int]) -> list[int]:
        return greedy(lambda tokens: logits_after(window, tokens), begin, 6)

    row = logits_after(window, [30])[0, -1]
    heard = max((40, 41), key=lambda n: float(row[n]))
    with opalite.Generator(folder_at(tmp_path / "all", special, {"bos_token_id": END})) as made:
        for prompt, begin in (
            ("", [30, heard, 5, 7]),
            ("<|yue|>", [30, 41]),
            ([40, 5], [30, 40, 5]),
            ([9, 30, 41], [9, 30, 41]),
        ):
            found = made.generate(prompt, audio=window, max_tokens=6, ignore_end=True)
            assert list(found.tokens) == after(begin), prompt
    told = {"bos_token_id": END, "vocab_size": 51864}
    with opalite.Generator(folder_at(tmp_path / "english", special, told, is_multilingual=False)) as made:
        assert list(made.generate("", audio=window, max_tokens=6, ignore_end=True).tokens) == after([30, 7])


def test_a_prompt_is_the_start_that_nothing_names(tmp_path: Path) -> None:
    window = SOUND[:16000]
    with opalite.Generator(folder_at(tmp_path, config={})) as made:
        found = made.generate([33, 4], audio=window, max_tokens=6, ignore_end=True)
        assert list(found.tokens) == greedy(lambda tokens: logits_after(window, tokens), [33, 4], 6)
        with pytest.raises(InputError, match=r"names no decoder_start_token_id .* first tokens as the prompt"):
            made.generate("", audio=window)


def test_each_window_by_the_command(tmp_path: Path) -> None:
    path = write(tmp_path / "long.wav", SOUND[:, None], 2)
    folder = folder_at(tmp_path / "model")
    asked = ["generate", str(folder), "--audio", str(path), "--max-tokens", "5", "--ignore-end"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    with opalite.Generator(folder) as made:
        texts = [made.generate("", audio=w, max_tokens=5, ignore_end=True).text for w in made.windows(path)]
    assert done.stdout == "".join(f"{text}\n" for text in texts)


def test_a_decoder_alone_hears_nothing(tmp_path: Path) -> None:
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": KINDS["llama"]()})) as made:
        with pytest.raises(InputError, match="no encoder that could read sound"):
            made.stream("a", audio=SOUND)
        with pytest.raises(InputError, match="no encoder that could read sound"):
            made.windows(SOUND)
