"""Prompts: texts, tokens and messages as tokens that a model reads, and the first tokens of a decoder that hears."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InputError
from .model_folder import ModelFolder
from .text_options import Prompt
from .tokenizer import Message, Tokenizer

_START = "<|startoftranscript|>"
_LANGUAGE = re.compile(r"<\|[a-z]{2,3}\|>")
_ENGLISH = 51864
"""Words of Whisper's models that know English alone; their tokenizers list all languages."""


class Prompts:
    """Prompts of one model. vocabulary: the number of its tokens, None if unknown."""

    def __init__(self, folder: ModelFolder, tokenizer: Tokenizer, vocabulary: int | None) -> None:
        self._folder, self._tokenizer, self._vocabulary = folder, tokenizer, vocabulary

    def read(self, prompt: Prompt, chat: bool, system: str | None, options: Mapping[str, Any]) -> str | list[int]:
        """Return the prompt as text or tokens; messages use the chat template, with `options` as variables.

        InputError for anything else, and for tokens outside the vocabulary.
        """
        if isinstance(prompt, str):
            if not chat and system is None:
                return prompt
            messages: list[Message] = [{"role": "user", "content": prompt}]
        else:
            items: list[Any] = list(prompt) if isinstance(prompt, Sequence | np.ndarray) else [None]
            if isinstance(prompt, bytes | bytearray | memoryview):
                items = [None]
            if all(isinstance(t, int | np.integer) and not isinstance(t, bool) for t in items):
                return self._checked([int(t) for t in items])
            if not all(isinstance(m, Mapping) for m in items):
                raise InputError(
                    f"a prompt is text, numbers of tokens or messages {{'role', 'content'}}, got {_shown(prompt)}"
                )
            messages = items
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        # The template contains the special tokens.
        return self._tokenizer.encode(self._tokenizer.chat(messages, **options), special=False)

    def _checked(self, tokens: list[int]) -> list[int]:
        last = None if self._vocabulary is None else self._vocabulary - 1
        for token in tokens:
            if token < 0 or (last is not None and token > last):
                known = "token numbers begin at 0" if last is None else f"the model's tokens are 0 to {last}"
                raise InputError(f"the prompt has the token {token}, and {known}: is it another tokenizer's?")
        return tokens

    def tokens(self, text: str | list[int]) -> list[int]:
        """Return what a decoder alone reads. InputError if there is nothing to read."""
        tokens = self._tokenizer.encode(text) if isinstance(text, str) else text
        if not tokens and self._folder.start_token is not None:
            tokens = [self._folder.start_token]
        if not tokens:
            raise InputError("the prompt is empty, and the model names no token to begin with: give some text")
        return tokens

    @cached_property
    def _named_start(self) -> int | None:
        """The first token of the decoder, from a configuration or the tokenizer."""
        named = self._folder.decoder_start_token
        return self._tokenizer.token(_START) if named is None else named

    @property
    def start(self) -> int:
        """The first token of a decoder that follows an encoder. InputError if nothing names one."""
        found = self._folder.start_token if self._named_start is None else self._named_start
        if found is None:
            raise InputError(
                f"{self._folder.path} names no decoder_start_token_id in config.json or generation_config.json, and "
                f"its tokenizer has no {_START}: give the decoder's first tokens as the prompt"
            )
        return found

    def begin(self, text: str | list[int], hear: Callable[[Sequence[int], Collection[int]], int]) -> list[int]:
        """Return the first tokens of a decoder that hears: `text` after the start, or by default the model's own.

        A prompt that has the start replaces it, and so does one for a model that does not name it. hear: picks the
        likeliest of some tokens after others. Whisper transcribes in the language heard, without timestamps.
        """
        ids = self._tokenizer.encode(text, special=False) if isinstance(text, str) else text
        if ids:
            return ids if self._named_start in (None, *ids) else [self.start, *ids]
        forced = [n for _, n in sorted(self._setting("forced_decoder_ids") or [])]
        languages = self._languages
        if not forced:
            task = (self._setting("task_to_id") or {}).get("transcribe", self._tokenizer.token("<|transcribe|>"))
            plain = self._setting("no_timestamps_token_id")
            plain = self._tokenizer.token("<|notimestamps|>") if plain is None else plain
            forced = [*([None, task] if languages else []), plain]
        if languages and None in forced[:1]:
            forced[0] = hear([self.start], languages)
        return [self.start, *(n for n in forced if n is not None)]

    @property
    def _languages(self) -> Collection[int]:
        """Tokens of the languages that the model was trained to hear."""
        named = self._setting("lang_to_id")
        if named is not None or self._setting("is_multilingual") is False or self._vocabulary == _ENGLISH:
            return list((named or {}).values())
        if self._tokenizer.token(_START) is None:
            return []
        return [n for name, n in self._tokenizer.added_tokens.items() if _LANGUAGE.fullmatch(name)]

    def _setting(self, name: str) -> Any:
        return self._folder.setting(name)


def _shown(prompt: Any) -> str:
    text = repr(prompt)
    return text if len(text) <= 80 else f"{text[:80]}..."
