"""Decoder: computes logits for a token sequence and keeps its KV caches on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import InputError, OptionError
from ..run.api.options.session_options import argmax_name
from .decoder_inputs import BRANCH, DecoderInputs, find_decoder_inputs
from .embedding import VECTORS, Embedding, open_embedding
from .logits_head import vocabulary_of
from .model_folder import ModelFolder
from .prepare_step import StepPreparation

if TYPE_CHECKING:
    from ..run.api.caches.model_state import State
    from ..run.api.session.inference_session import InferenceSession

_CHUNK_BYTES = 64 << 20
_LEAST_CHUNK, _MOST_CHUNK = 32, 512


class Decoder:
    """A decoder with the tokens that it has read.

    open_session: function that opens the session of a file with the caller's options. cache: format of the KV caches,
    as in InferenceSession.state.
    """

    def __init__(self, folder: ModelFolder, open_session: Any, cache: str = "model") -> None:
        self.session: InferenceSession = open_session(folder.decoder)
        config = folder.genai_model.get("decoder", {})
        self.inputs = find_decoder_inputs(self.session.get_inputs(), self.session.get_outputs(), config)
        self.embedding: Embedding | None = None
        if "tokens" not in self.inputs.roles:
            self.embedding = open_embedding(folder, open_session, self.inputs.sequence)
            self.inputs = replace(self.inputs, embed=self.embedding.rows)
        self._vectors: Any = None  # of the positions of the prompt that are given
        self._cache, self.sizes = cache, self._sizes(config.get("head_size"))
        self._preparation: StepPreparation | None = None
        self._state: State | None = self.new_state() if self.inputs.caches else None
        self._prefill_session: InferenceSession | None = None
        self._prefill_inputs = self.inputs
        if folder.prompt_decoder is not None:
            self._prefill_session = open_session(folder.prompt_decoder)
            self._prefill_inputs = find_decoder_inputs(
                self._prefill_session.get_inputs(), self._prefill_session.get_outputs(), {}
            )
        self._encoded: dict[str, Any] = {}
        self._tokens: list[int] = []
        steps = self.inputs.sequence.shape[1 if self.embedding is not None else -1 :][:1]
        self._fixed = steps[0] if steps and isinstance(steps[0], int) else None  # tokens per run
        self._chunk = self._fixed or _MOST_CHUNK
        logits = next(a for a in self.session.get_outputs() if a.name == self.inputs.logits)
        self._returns_last = tuple(logits.shape[1:2]) == (1,)  # else logits of all positions

    def new_state(self) -> State:
        """Return an empty state of the decoder."""
        return self.session.state(self.inputs.pairs, cache=self._cache, sizes=self.sizes)

    def _sizes(self, head: Any) -> dict[str, int]:
        """Return dynamic row sizes of caches: onnxruntime-genai's builder declares them outside the model."""
        last = (a.shape[-1] for a in self.session.get_inputs() if a.name in self.inputs.caches and a.shape)
        return {dim: head for dim in last if isinstance(dim, str) and isinstance(head, int)}

    @property
    def state(self) -> State | None:
        """The caches of `tokens`; None for a model without."""
        return self._state

    @property
    def reads_alone(self) -> bool:
        """Whether a second model reads prompts, or an encoder's outputs belong to the sequence."""
        held = bool(self._encoded) or self._vectors is not None
        return self._prefill_session is not None or "encoded" in self.inputs.roles or held

    def take_sequence(self, state: State, slot: int, first: int, tokens: Sequence[int]) -> None:
        """Continue the sequence `tokens`, in whose `slot` of `state` the positions begin at `first`."""
        assert self._state is not None
        self._state.allocate(state, 1, len(tokens))
        self._state.copy_sequence(state, (slot, 0), first, 0, len(tokens))
        self._tokens = list(tokens)

    def fork(self) -> Decoder:
        """Return a decoder on the same sessions that has read nothing."""
        other = copy(self)
        other._state = self.new_state() if self.inputs.caches else None
        other._tokens, other._encoded, other._vectors = [], {}, None
        return other

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens with logits, None if it is dynamic."""
        logits = next(a for a in self.session.get_outputs() if a.name == self.inputs.logits)
        last = logits.shape[-1] if logits.shape else None
        return last if isinstance(last, int) else None

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    @property
    def cache_bytes(self) -> int:
        """Size of the caches in bytes; 0 for a model without caches, which reads all tokens in each run."""
        return 0 if self._state is None else self._state.nbytes

    @property
    def sessions(self) -> list[InferenceSession]:
        found = [s for s in (self.session, self._prefill_session) if s is not None]
        return found + (self.embedding.sessions if self.embedding is not None else [])

    def rewind(self, tokens: Sequence[int], encoded: Mapping[str, Any] | None = None) -> list[int]:
        """Truncate to the common prefix of `tokens` and the tokens read so far; return the tokens still to read (>= 1).

        encoded: outputs of an encoder by name; they discard all tokens read.
        """
        common = 0
        if encoded is None and not self._encoded and self._vectors is None:
            limit = min(len(tokens) - 1, len(self._tokens))
            common = next((i for i in range(limit) if tokens[i] != self._tokens[i]), limit)
        if not self._truncate(common):
            common = 0
        self._vectors = None if encoded is None else encoded.get(VECTORS)
        if encoded is not None and self._vectors is None:
            self._set_encoded(encoded)
        return list(tokens[common:])

    def _truncate(self, length: int) -> bool:
        if self._state is not None and length < len(self._tokens):
            if length and BRANCH not in self.inputs.caches:
                try:
                    self._state.truncate(length)
                except OptionError:  # a state that is no cache starts anew
                    length = 0
            else:
                length = 0
            if not length:
                self._state.reset()
        kept = length > 0 or not self._tokens
        del self._tokens[length:]
        return kept

    def _set_encoded(self, encoded: Mapping[str, Any]) -> None:
        """Feed an encoder's outputs in every run: by their own names, as caches, or as hidden states."""
        self._encoded = {}
        for session in self.sessions:
            names = {a.name for a in session.get_inputs()}
            for name, value in encoded.items():
                for wanted in (name, name.replace("present", "past"), name.replace("present", "past_key_values")):
                    if wanted in names:
                        self._encoded[wanted] = value
        hidden = [v for n, v in encoded.items() if n not in self._encoded and "hidden" in n]
        for inputs in (self.inputs, self._prefill_inputs):
            arg = inputs.roles.get("encoded")
            if arg is not None and arg.name not in self._encoded:
                if not hidden:
                    raise InputError(
                        f"the decoder's input '{arg.name}' is none of the encoder's outputs: {', '.join(encoded)}"
                    )
                self._encoded[arg.name] = hidden[0]

    def read(self, tokens: Sequence[int]) -> Any:
        """Read `tokens` and return logits [1, positions, vocabulary], of the last position at least.

        Many tokens are read in chunks to limit the size of intermediates. Chunks are smaller if the model returns
        logits of all positions.
        """
        if self._state is None:
            self._tokens += tokens
            return self._run(self.session, self.inputs, self._tokens, 0)[0]
        if self._preparation is None and not self._tokens and not self._encoded:
            self._preparation = StepPreparation(self, len(tokens))
        if self._prefill_session is not None and not self._tokens:
            return self._read_prompt(tokens)
        logits = None
        rest = list(tokens)
        while rest:
            piece, rest = self.split(rest)
            feeds = {**self.inputs.feeds(piece, len(self._tokens)), **self._encoded_feeds(self.session)}
            if self._vectors is not None and self.embedding is not None:
                name = self.inputs.sequence.name
                feeds[name] = self.embedding.fill(feeds[name], piece, self._tokens, self._vectors)
            # On a device in host memory, leaving logits on the device saves nothing.
            stay = not self.session.device.on_host
            logits = self._state.run(feeds, [self.inputs.logits], on_device=stay)[0]
            self._tokens += piece
            if self._fixed is None and not self._returns_last:
                self._chunk = _chunk(vocabulary_of(logits))
        return logits

    def split(self, tokens: list[int]) -> tuple[list[int], list[int]]:
        """Split tokens into those that one run reads, and the rest."""
        whole = self._state is None or self._prefill_session is not None or BRANCH in self.inputs.caches
        size = len(tokens) if whole and not self._tokens else self._chunk
        return tokens[:size], tokens[size:]

    @property
    def can_generate_greedy(self) -> bool:
        names, tokens = (a.name for a in self.session.get_outputs()), self.inputs.sequence
        return self._state is not None and argmax_name(self.inputs.logits) in names and tokens.type == "tensor(int64)"

    def generate_greedy(self, token: int, count: int) -> list[int]:
        """Read `token`, then generate `count` tokens greedily; all but the last are read too.

        Needs `can_generate_greedy` and at least one token read before. With device memory, the host does not wait
        between tokens (`ran_multi_step`). `rewind` discards unwanted tokens.
        """
        assert self._state is not None
        taken, made = self.inputs.roles["tokens"].name, argmax_name(self.inputs.logits)
        held, begin = self._encoded_feeds(self.session), len(self._tokens)
        feeds = [{**self.inputs.feeds([token], begin + i), **held} for i in range(count)]
        for later in feeds[1:]:
            del later[taken]
        found = [int(f[0].item()) for f in self._state.chain(feeds, {taken: made}, [made])]
        self._tokens += [token, *found[:-1]]
        return found

    @property
    def ran_multi_step(self) -> bool:
        """Whether the device computed several tokens without the host in the last `generate_greedy`."""
        return self._state is not None and self._state.ran_multi_step

    def _read_prompt(self, tokens: Sequence[int]) -> Any:
        """Read the prompt by the model without caches; its outputs become the caches of the other."""
        assert self._prefill_session is not None
        assert self._state is not None
        names = [a.name for a in self._prefill_session.get_outputs()]
        found = dict(zip(names, self._run(self._prefill_session, self._prefill_inputs, tokens, 0, names), strict=True))
        taken = {p.past: p.present for p in self._state.pairs}
        pasts = {n.replace("present", "past_key_values", 1): v for n, v in found.items() if n.startswith("present")}
        missing = [n for n, present in taken.items() if n not in pasts and present not in found]
        if missing:
            raise InputError(
                f"the decoder's '{missing[0]}' is given by no output of the first model: {', '.join(names)}"
            )
        self._state.set_values({n: pasts.get(n, found.get(present)) for n, present in taken.items()})
        inputs = {a.name for a in self.session.get_inputs()}
        self._encoded.update({n: v for n, v in pasts.items() if n in inputs and n not in taken})
        self._tokens += tokens
        return found[self._prefill_inputs.logits]

    def _run(
        self,
        session: InferenceSession,
        inputs: DecoderInputs,
        tokens: Sequence[int],
        past: int,
        names: Sequence[str] | None = None,
    ) -> list[Any]:
        feeds = {**inputs.feeds(tokens, past), **self._encoded_feeds(session)}
        return session.run(names or [inputs.logits], feeds)

    def _encoded_feeds(self, session: InferenceSession) -> dict[str, Any]:
        own = self._state is not None and session is self.session
        taken = {p.past for p in self._state.pairs} if self._state is not None and own else set()
        names = (a.name for a in session.get_inputs())
        return {n: self._encoded[n] for n in names if n in self._encoded and n not in taken}

    def close(self) -> None:
        if self._preparation is not None:
            self._preparation.wait()
        for session in self.sessions:
            session.close()


def _chunk(vocabulary: int) -> int:
    """Return the tokens per run: a power of two from 32 to 512 with at most 64 MiB of float32 logits."""
    fits = max(1, _CHUNK_BYTES // (4 * vocabulary))
    return min(_MOST_CHUNK, max(_LEAST_CHUNK, 1 << (fits.bit_length() - 1)))
