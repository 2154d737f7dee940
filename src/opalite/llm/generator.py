"""Generator: a loaded language model that generates text; and `generate`, one text by one call."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, Unpack, overload

from ..errors import InputError, OptionError
from ..run.api.options.session_options import ARGMAX, LAST_POSITION, check_session_options
from ..run.api.session.inference_session import InferenceSession
from ..run.report.measure_peaks import measure_bandwidth
from .decoder import Decoder
from .decoder_inputs import logits_names
from .embedding import GIVEN, VECTORS, check_vectors
from .encoder import Encoder
from .generated_text import GeneratedText, GenerationMetrics, Limits
from .logits_head import LogitsHead, last_row
from .model_folder import ModelFolder, local_path, open_folder
from .prompts import Prompts
from .sampling import Sampling
from .text_batch import TextBatch
from .text_options import Prompt, TextOptions
from .token_stream import Stream, Streams
from .tokenizer import Tokenizer

_DEFAULT_TOKENS = 256
"""Default number of tokens, if neither the caller nor the model sets it."""


@dataclass(frozen=True)
class Generation:
    """A generated text. reason: cause of its end: 'end' (end token), 'stop' (stop string), 'length' or 'closed'."""

    text: str
    tokens: tuple[int, ...]
    reason: str
    metrics: GenerationMetrics

    def __str__(self) -> str:
        return self.text


class Generator:
    """A language model on one OpenCL device, with the caches of its last text. A context manager; not thread-safe.

    A prompt that shares a prefix with the last text reads the rest only.

    with opalite.Generator("folder") as writer:
        for piece in writer.stream("Once upon a time", max_tokens=64):
            print(piece, end="", flush=True)

    model: a folder as written by optimum or onnxruntime-genai, an .onnx file in one, or `hf:OWNER/NAME`, which is
    downloaded from the Hugging Face Hub. file: the decoder's file if the folder has several. cache: 'int8' stores the
    KV caches in 8 bits. options: options of InferenceSession, such as device and precision.

    Raises ModelFileError for missing files, InputError for unknown inputs of the decoder, and ExtraError if the extra
    opalite-cl[llm] is not installed.
    """

    def __init__(
        self, model: str | os.PathLike[str], *, file: str | None = None, cache: str = "model", **options: Any
    ) -> None:
        self.folder: ModelFolder = open_folder(local_path(model, file), file)
        self.tokenizer = Tokenizer(self.folder)

        session_options = check_session_options(options.pop("sess_options", None))
        logits = ",".join(logits_names(self.folder.genai_model.get("decoder", {})))
        session_options.add_session_config_entry(LAST_POSITION, logits)
        session_options.add_session_config_entry(ARGMAX, logits)

        def open_session(path: Path) -> InferenceSession:
            return InferenceSession(path, session_options, **options)

        self._decoder = Decoder(self.folder, open_session, cache)
        self._encoder: Encoder | None = None
        if self.folder.encoder is not None:
            self._encoder = Encoder(open_session(self.folder.encoder), self.folder.preprocessor)
        self._head = LogitsHead(self._decoder.session, self._decoder.inputs.logits)
        self._prompts = Prompts(self.folder, self.tokenizer, self._decoder.vocabulary or self.folder.vocabulary)
        self.texts = TextBatch(self._decoder, self._head)
        self._streams: Streams | None = None

    @property
    def session(self) -> InferenceSession:
        """The decoder's session."""
        return self._decoder.session

    def stream(self, prompt: Prompt, **options: Unpack[TextOptions]) -> Stream:
        """Generate the text after `prompt` as an iterator of pieces; this ends the texts of an earlier call.

        prompt: text, token ids, or chat messages {"role": "user", "content": "..."}.
        Raises InputError for an invalid prompt, OptionError for values out of range.
        """
        return Stream(self.streams([prompt], **options))

    def streams(self, prompts: Sequence[Prompt], *, n: int = 1, **options: Unpack[TextOptions]) -> Streams:
        """Generate the texts after several prompts at once, as an iterator of (number of the text, piece).

        n: texts for each prompt, which differ by their seeds: `seed`, `seed` + 1, ... The texts of the first prompt
        come first. Each text is the one that its prompt alone gives, and ends on its own. Up to 8 are generated at
        once, where the model's inputs allow padding (`texts.refusal` says why not); the others wait.
        """
        if self._streams is not None:
            self._streams.close()
        if n < 1:
            raise OptionError(f"n is a number of texts from 1 on, got {n!r}")
        made = [self.new_text(prompt, **own) for prompt in prompts for own in _options_of_each(n, options)]
        self._streams = Streams(self.texts, made, self.weight_bytes)
        return self._streams

    @overload
    def generate(
        self,
        prompt: str,
        *,
        n: Literal[1] = 1,
        beams: int = 1,
        length_penalty: float = 1.0,
        **options: Unpack[TextOptions],
    ) -> Generation: ...

    @overload
    def generate(
        self, prompt: Any, *, n: int = 1, beams: int = 1, length_penalty: float = 1.0, **options: Unpack[TextOptions]
    ) -> Any: ...

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        n: int = 1,
        beams: int = 1,
        length_penalty: float = 1.0,
        **options: Unpack[TextOptions],
    ) -> Generation | list[Generation]:
        """Generate the whole text: text, tokens, reason of the end, and metrics; a list for several prompts or n > 1.

        prompt: as in `stream`, or several of them. n: as in `streams`. beams: with more than one, each text is the most
        probable one that a beam search finds; its score is the sum of log-probabilities divided by the number of tokens
        to the power of `length_penalty`.
        """
        prompts: list[Any] = list(prompt) if _are_several(prompt) else [prompt]
        if beams != 1:
            if n != 1:
                raise OptionError("a beam search gives one text: leave out n or beams")
            found = [self._search(p, beams, length_penalty, options) for p in prompts]
        else:
            streams = self.streams(prompts, n=n, **options)
            pieces: list[list[str]] = [[] for _ in streams.texts]
            for number, piece in streams:
                pieces[number].append(piece)
            found = [_generation("".join(own), text) for own, text in zip(pieces, streams.texts, strict=True)]
        return found if _are_several(prompt) or n != 1 else found[0]

    def _search(self, prompt: Prompt, beams: int, length_penalty: float, options: TextOptions) -> Generation:
        if self._streams is not None:
            self._streams.close()
        text = self.new_text(prompt, **options)
        if not text.sampling.is_greedy or text.limits.stops:
            raise OptionError("a beam search takes the most probable text: leave out temperature and stop")
        written = self.texts.search(text, beams, length_penalty)
        text.metrics.weight_bytes = self.weight_bytes()
        return _generation(written, text)

    def new_text(
        self,
        prompt: Prompt,
        *,
        chat: bool = False,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: int | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        ignore_end: bool = False,
        audio: Any = None,
        encoder_inputs: Mapping[str, Any] | None = None,
        inputs_embeds: Any = None,
    ) -> GeneratedText:
        """Return the text that `texts` generates once it is added there. Arguments as in `stream`."""
        started = time.perf_counter()
        wanted = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        counted = {"presence_penalty": presence_penalty, "frequency_penalty": frequency_penalty}
        sampling = self._sampling(
            wanted, repetition_penalty, seed=seed, logit_bias=logit_bias, logprobs=logprobs, **counted
        )
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        text = self._prompts.read(prompt, chat, system, {"tools": tools, **(template_options or {})})
        given = dict(encoder_inputs or {})
        encoded: Mapping[str, Any] | None
        if inputs_embeds is not None:
            tokens, encoded = self._given_vectors(text, inputs_embeds)
        elif self._encoder is None:
            tokens, encoded = self._with_pictures(self._prompts.tokens(text), given, audio)
        else:
            if audio is not None:
                given |= self._encoder.features(audio)
            tokens, encoded = self._encode(self._encoder, text, given)
        context = self.folder.context_length
        remaining = None if context is None else context - len(tokens)
        if remaining is not None and remaining < 1:
            raise InputError(
                f"the prompt has {len(tokens)} tokens, the model's context length is {context}: nothing can "
                "follow, so shorten it"
            )
        if max_tokens is not None and max_tokens < 1:
            raise OptionError(f"max_tokens is a number from 1 on, got {max_tokens!r}")
        count = max_tokens or int(self.folder.setting("max_new_tokens") or _DEFAULT_TOKENS)
        ends: frozenset[int] = frozenset() if ignore_end else self.folder.end_tokens
        limits = Limits(count if remaining is None else min(count, remaining), stops, ends, *self._banned_tokens())
        return GeneratedText(self.tokenizer, tokens, sampling, limits, started, encoded)

    def windows(self, sound: Any) -> list[Any]:
        """Split a sound of any length (`audio` of `stream`) into windows for the encoder."""
        if self._encoder is None:
            raise InputError(f"{self.folder.path} has no encoder that could read sound")
        return list(self._encoder.windows(sound))

    def weight_bytes(self) -> int:
        """Return the bytes of the decoder's weights on the device."""
        return sum(s.stats().bytes.get("weights", 0) for s in self._decoder.sessions)

    def measure_bandwidth(self) -> float:
        """Measure the device's copy bandwidth in bytes per second (reads plus writes)."""
        return measure_bandwidth(self.session.runtime)

    def close(self) -> None:
        """End the current texts and free the device memory."""
        if self._streams is not None:
            self._streams.close()
        self._decoder.close()
        self._head.close()
        if self._encoder is not None:
            self._encoder.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _given_vectors(self, text: str | list[int], vectors: Any) -> tuple[list[int], dict[str, Any]]:
        """Return positions for `vectors` in place of a prompt, and the vectors by name."""
        if self._decoder.embedding is None:
            raise InputError(f"the decoder of {self.folder.path} reads tokens, no inputs_embeds")
        if text:
            raise InputError("inputs_embeds are in place of the prompt: give '' as the prompt")
        held = check_vectors(vectors, self._decoder.inputs.sequence.shape[-1])
        return [GIVEN] * len(held), {VECTORS: held}

    def _with_pictures(
        self, tokens: list[int], given: Mapping[str, Any], audio: Any
    ) -> tuple[list[int], dict[str, Any] | None]:
        """Return the prompt with places for the vectors of pictures, and these by name, None without pictures."""
        embedding = self._decoder.embedding
        if audio is not None or (given and embedding is None):
            raise InputError(f"{self.folder.path} has no encoder that could read {', '.join(given) or 'sound'}")
        if not given or embedding is None:
            return tokens, None
        positions = self._decoder.inputs.roles.get("positions")
        if positions is not None and len(positions.shape) == 3:
            raise InputError(
                f"the decoder counts positions by time, height and width ('{positions.name}' {positions.shape}), which "
                "is supported for text alone: leave the pictures out"
            )
        wide, vectors = embedding.see(given, tokens)
        return wide, {VECTORS: vectors}

    def _encode(
        self, encoder: Encoder, text: str | list[int], given: Mapping[str, Any]
    ) -> tuple[list[int], dict[str, Any]]:
        """Return the decoder's first tokens, and the encoder's outputs."""
        if encoder.takes_text:
            tokens = self.tokenizer.encode(text) if isinstance(text, str) else text
            return [self._prompts.start], encoder.run(tokens, given)
        encoded = encoder.run([], given)

        def hear(begin: Sequence[int], among: Collection[int]) -> int:
            self._decoder.rewind(begin, encoded)
            row = last_row(self._decoder.read(begin))
            return max(among, key=lambda n: float(row[n]))

        return self._prompts.begin(text, hear), encoded

    def _sampling(self, given: Mapping[str, Any], penalty: float | None, **others: Any) -> Sampling:
        samples = any(v is not None for v in given.values()) or bool(self.folder.setting("do_sample"))
        values: dict[str, Any] = {}
        if samples:
            values = {n: self.folder.setting(n) if v is None else v for n, v in given.items()}
            values["temperature"] = 1.0 if values["temperature"] is None else values["temperature"]
        penalty = self.folder.setting("repetition_penalty") if penalty is None else penalty
        values.update(repetition_penalty=penalty, **others)
        return Sampling(**{n: v for n, v in values.items() if v is not None})

    def _banned_tokens(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return tokens that are never generated, and tokens that are not generated first."""
        always = frozenset(self.folder.setting("suppress_tokens") or ())
        return always, always | frozenset(self.folder.setting("begin_suppress_tokens") or ())


def _generation(written: str, text: GeneratedText) -> Generation:
    return Generation(written, tuple(text.tokens), text.reason, text.metrics)


def _options_of_each(n: int, options: TextOptions) -> Iterator[TextOptions]:
    """The options of each of `n` texts of a prompt."""
    seed = options.get("seed")
    for number in range(n):
        yield options if seed is None else {**options, "seed": seed + number}


def _are_several(prompt: Any) -> bool:
    """Whether `prompt` is a sequence of prompts: of texts, or of lists of tokens or messages."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        return False
    return bool(len(prompt)) and all(isinstance(p, str) or (isinstance(p, Sequence) and len(p)) for p in prompt)


def generate(model: str | os.PathLike[str] | Generator, prompt: Prompt | Sequence[Prompt], **options: Any) -> Any:
    """Generate the text after `prompt`: `opalite.generate("folder", "Once upon a time", max_tokens=64).text`.

    model: a folder or .onnx file as in Generator, or a Generator, which avoids loading the model again. prompt: one, or
    several for a list of texts. options: those of Generator.generate, and those of Generator if `model` is a path
    (device, precision, file, ...).
    """
    if isinstance(model, Generator):
        return model.generate(prompt, **options)
    own = {*TextOptions.__annotations__, "n", "beams", "length_penalty"}
    with Generator(model, **{n: v for n, v in options.items() if n not in own}) as made:
        return made.generate(prompt, **{n: v for n, v in options.items() if n in own})
