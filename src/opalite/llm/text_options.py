"""TextOptions: what a caller asks of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from .tokenizer import Message

Prompt = str | Sequence[int] | Sequence[Message]


class TextOptions(TypedDict, total=False):
    """Options of Generator.stream, streams and generate.

    chat: treat the text as a user's message for the model's chat template. system: the system message before it. tools:
    descriptions of functions for the template, each {"type": "function", "function": {...}}. template_options: further
    variables of the template, such as enable_thinking.
    max_tokens: default: generation_config.json, else 256; limited by the model's context length.
    temperature, top_k, top_p, min_p, repetition_penalty: see Sampling. Default: the model's configuration; if that does
    not sample and none of the first four is given, decoding is greedy.
    presence_penalty, frequency_penalty, logit_bias, logprobs: see Sampling; the host then reads all logits of each
    position. The stream's `logprobs` are those of its `tokens`.
    stop: strings that end the text; they are not part of it. ignore_end: continue after end tokens.
    audio: sound for an encoder of spectrograms such as Whisper's: a wav file's path, samples from -1 to 1 at the
    encoder's rate (16 kHz), or (samples, rate); at most one window (30 s). Without a prompt, the decoder detects the
    language.
    encoder_inputs: arrays by name for an encoder that reads no text, such as input_features, or pixel_values of
    pictures, in whose places the prompt has the model's image token.
    inputs_embeds: vectors [positions, width] in place of the prompt, for a decoder that reads vectors.
    """

    chat: bool
    system: str | None
    tools: Sequence[Mapping[str, Any]] | None
    template_options: Mapping[str, Any] | None
    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | None
    logprobs: int | None
    seed: int | None
    stop: str | Sequence[str]
    ignore_end: bool
    audio: Any
    encoder_inputs: Mapping[str, Any] | None
    inputs_embeds: Any
