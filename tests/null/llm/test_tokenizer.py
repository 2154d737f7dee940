"""Tokenizer: pieces of whole characters, chat templates, and errors for missing files."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from opalite.errors import ExtraError, InputError, ModelFileError
from opalite.llm.model_folder import ModelFolder
from opalite.llm.tokenizer import Detokenizer, Tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")

TEXT = "Der Bär aß 3 €, 熊🐻‍❄️ und\n\tmehr. "
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def bytes_of_words(folder: Path, merges: int) -> Tokenizer:
    """Return a byte-level tokenizer with few merges, so that characters are several tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=257 + merges, initial_alphabet=alphabet, special_tokens=["<end>"], show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return Tokenizer(ModelFolder(folder, folder / "model.onnx"))


@pytest.mark.parametrize("merges", [0, 9, 40])
def test_pieces_are_whole_characters_and_join_to_the_text(tmp_path: Path, merges: int) -> None:
    words = bytes_of_words(tmp_path, merges)
    tokens = words.encode(TEXT * 4)
    assert len(tokens) > len(TEXT * 4) or merges
    for split in (0, 1, 7):
        pieces = Detokenizer(words, words.encode("Da: ") + tokens[:0])
        told = [pieces.add(t) for t in tokens]
        assert "\ufffd" not in "".join(told)
        assert "".join(told) + pieces.end() == TEXT * 4
        before = Detokenizer(words, tokens[:split])
        known = words.decode(tokens[:split]).rstrip("\ufffd")
        assert "".join(before.add(t) for t in tokens[split:]) == words.decode(tokens)[len(known) :]


def test_bytes_that_are_no_character_are_told_at_the_end(tmp_path: Path) -> None:
    words = bytes_of_words(tmp_path, 0)
    first = words.encode("€")[0]
    pieces = Detokenizer(words)
    assert pieces.add(first) == ""
    assert pieces.end() == "\ufffd"


def test_spaces_between_words_of_sentencepiece_stay(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"\u2581a": 0, "\u2581b": 1, "c": 2}, unk_token="c"))
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = Tokenizer(ModelFolder(tmp_path, tmp_path / "model.onnx"))
    pieces = Detokenizer(words, [0])
    assert [pieces.add(t) for t in (1, 2, 1)] == [" b", "c", " b"]


def told(folder: Path, **tokenizer: Any) -> Tokenizer:
    bytes_of_words(folder, 0)
    return Tokenizer(ModelFolder(folder, folder / "model.onnx", tokenizer=tokenizer))


def test_chat_templates(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    wanted = "<system>Be brief.</s>\n<user>Hi</s>\n<assistant>"
    assert told(tmp_path, chat_template=TEMPLATE, eos_token="</s>").chat(messages) == wanted
    listed = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": TEMPLATE}]
    assert told(tmp_path, chat_template=listed, eos_token={"content": "</s>"}).chat(messages) == wanted
    with pytest.raises(InputError, match="does not take these messages: no tools"):
        told(tmp_path, chat_template=TEMPLATE).chat([{"role": "tool", "content": ""}])
    with pytest.raises(InputError, match="has no chat template"):
        told(tmp_path).chat(messages)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert told(tmp_path, eos_token="</s>").chat(messages) == wanted


def test_a_template_reaches_nothing_of_python(tmp_path: Path) -> None:
    words = told(tmp_path, chat_template="{{ messages.__class__.__mro__ }}")
    with pytest.raises(InputError, match="chat template"):
        words.chat([])


def test_missing_files_and_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json"):
        Tokenizer(ModelFolder(tmp_path, tmp_path / "model.onnx"))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": 1}))
    with pytest.raises(InputError, match=r"tokenizer\.json cannot be read"):
        Tokenizer(ModelFolder(tmp_path, tmp_path / "model.onnx"))
    usual = builtins.__import__

    def none_of_the_extra(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("tokenizers"):
            raise ImportError(name)
        return usual(name, *args, **options)

    monkeypatch.setattr("opalite.extras.import_module", none_of_the_extra)
    with pytest.raises(ExtraError, match=r"pip install 'opalite-cl\[llm\]'"):
        Tokenizer(ModelFolder(tmp_path, tmp_path / "model.onnx"))


@pytest.mark.parametrize(
    "template, text",
    [
        ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}.{% endfor %}", "é."),
        ("{{ messages | tojson(ensure_ascii=False) }}", '[{"role": "user", "content": "é"}]'),
        ("{{ messages | tojson(indent=None, separators=(',', ':'), ensure_ascii=True) }}",
         '[{"role":"user","content":"\\u00e9"}]'),
        ("{{ tools[0].function.name }}{{ enable_thinking }}", "addFalse"),
    ],
)  # fmt: skip
def test_templates_have_what_transformers_gives_them(tmp_path: Path, template: str, text: str) -> None:
    bytes_of_words(tmp_path, 0)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "of the configuration"}))
    (tmp_path / "chat_template.jinja").write_text(template)
    words = Tokenizer(ModelFolder(tmp_path, tmp_path / "model.onnx"))
    tools = [{"type": "function", "function": {"name": "add"}}]
    assert words.chat([{"role": "user", "content": "é"}], tools=tools, enable_thinking=False) == text
