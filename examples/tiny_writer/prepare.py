"""The text as tokens: trains the tokenizer, bytes joined by frequency, and writes tokenizer.json and tokens.npz."""

from __future__ import annotations

from pathlib import Path

import corpus
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
"""Stands between two paragraphs; its number is 0."""


def prepare(folder: Path, vocabulary: int) -> Path:
    """Write folder/tokenizer.json, and the tokens next to the folder; return their path."""
    training, held_out = corpus.split(corpus.paragraphs())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(training, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {name: _tokens(tokenizer, part) for name, part in (("training", training), ("held_out", held_out))}
    path = folder.parent / "tokens.npz"
    np.savez_compressed(path, **ids)
    return path


def _tokens(tokenizer: Tokenizer, lines: list[str]) -> np.ndarray:
    ids = [0]
    for encoded in tokenizer.encode_batch(lines):
        ids += [*encoded.ids, 0]
    return np.array(ids, np.uint16)
