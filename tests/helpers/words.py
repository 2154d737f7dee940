"""A folder of a language model around a decoder's bytes, with a tokenizer of as many words as tests' decoders know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from .decoders import WORDS

END = 0
"""The token that ends a text."""
LETTERS = "".join(chr(i) for i in range(32, 32 + WORDS - 1))
"""Token i + 1 is the letter i."""


def make_folder(
    path: Path, files: Mapping[str, bytes], special: Mapping[str, int] | None = None, **configs: Mapping[str, Any]
) -> Path:
    """Write .onnx files, configurations (config={...} is config.json) and a tokenizer.json whose tokens are letters.

    special: further tokens in place of letters.
    """
    tokenizers = pytest.importorskip("tokenizers")
    path.mkdir(parents=True, exist_ok=True)
    for name, contents in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(contents)
    for name, told in configs.items():
        (path / f"{name}.json").write_text(json.dumps(told))
    named = {"<end>": END, **(special or {})}
    vocabulary = {**{letter: i + 1 for i, letter in enumerate(LETTERS) if i + 1 not in named.values()}, **named}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<end>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in named])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def letters(tokens: list[int]) -> str:
    """The text of tokens."""
    return "".join(LETTERS[t - 1] for t in tokens if t != END)
