"""BeamSearch, GreedySearch, Sampling and WhisperBeamSearch of com.microsoft: loops on the host over a decoder.

The decoder, and the encoder if the model has one, are models of their own that run on the device. The host selects the
next tokens (`host/token_search.py`). The decoder itself reorders its KV caches when beams are reordered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnx import AttributeProto

from ...errors import ModelError, UnsupportedOpError
from ...ir import Array, DType
from ..host.token_search import BeamSearch, LogitsProcessors, MinStdRandom, NucleusSampler, log_softmax
from ..proto.decode import ValueInfo
from ..proto.graphdef import Attr, GraphDef, NodeDef
from .host_tasks import ComputedTask, Runner, Values
from .loop_body_tasks import Body
from .name_scopes import Item

ORDER = "opalite/order"
"""Input of a rewritten graph: the row indices for its caches, or for its outputs."""

_GPT, _WHISPER = 0, 2

_BEAM_INPUTS = (
    *("max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty"),
    *("vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids", "logits_processor"),
)
_INPUTS = {
    "BeamSearch": _BEAM_INPUTS,
    "WhisperBeamSearch": (*_BEAM_INPUTS, "cross_qk_layer_head", "extra_decoding_ids", "temperature"),
    "GreedySearch": (
        *("max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask"),
    ),
    "Sampling": (
        *("max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask"),
        *("presence_mask", "seed"),
    ),
}
"""Names of the inputs after the first one, which holds the prompt's tokens or the encoder's input."""


def gather_inputs(graph: GraphDef, names: Sequence[str], axis: int) -> GraphDef:
    """Gather the inputs `names` by the further input ORDER along `axis`, before the graph reads them."""
    taken = {n: f"{n}/{ORDER}" for n in names}
    inputs = [replace(v, name=taken.get(v.name, v.name)) for v in graph.inputs]
    nodes = [_gather(old, n, axis) for n, old in taken.items()]
    order = ValueInfo(ORDER, "tensor", DType.INT32, (None,))
    return replace(graph, inputs=(*inputs, order), nodes=(*nodes, *graph.nodes))


def gather_outputs(graph: GraphDef, first: int) -> GraphDef:
    """Gather the outputs from number `first` on by the further input ORDER along axis 0."""
    outputs = [replace(v, name=f"{v.name}/{ORDER}") if i >= first else v for i, v in enumerate(graph.outputs)]
    pairs = zip(graph.outputs[first:], outputs[first:], strict=True)
    nodes = [_gather(own.name, given.name, 0) for own, given in pairs]
    order = ValueInfo(ORDER, "tensor", DType.INT32, (None,))
    return replace(graph, inputs=(*graph.inputs, order), outputs=tuple(outputs), nodes=(*graph.nodes, *nodes))


def _gather(source: str, target: str, axis: int) -> NodeDef:
    attributes = {"axis": Attr(AttributeProto.INT, axis)}
    return NodeDef("Gather", "", 13, target, (source, ORDER), (target,), attributes, used=(True,))


class GenerationTask(ComputedTask):
    """Task of one of the four operators.

    bodies: by the name of the graph attribute. "reorder" is the decoder with its caches gathered by beam; "expand" is
    the encoder with its outputs repeated for each beam.
    """

    reason = "a decoder runs once for each token"

    def __init__(self, item: Item, bodies: Mapping[str, Body]) -> None:
        super().__init__(item)
        self.bodies = bodies
        self._attrs = item.node.attrs

    def compute(self, values: Values, runner: Runner) -> list[Any]:
        return _Generation(self, values, runner).run()

    def named(self, values: Values) -> dict[str, Any]:
        """Return the node's inputs after the first one, by name, as host arrays."""
        names = _INPUTS[self.item.node.op_type]
        given = ((name, self.value(values, 1 + i)) for i, name in enumerate(names))
        return {name: np.asarray(v) for name, v in given if v is not None}


class _Generation:
    """One run of a generation operator."""

    def __init__(self, task: GenerationTask, values: Values, runner: Runner) -> None:
        self.task, self.values, self.runner = task, values, runner
        attrs = task.item.node.attrs
        given = task.named(values)
        self.attrs, self.given = attrs, given

        def number(name: str, default: float) -> Any:
            return given[name].reshape(-1)[0].item() if name in given else default

        searches = "num_beams" in _INPUTS[task.item.node.op_type]
        self.beams = int(number("num_beams", 1)) if searches else 1
        self.returned = int(number("num_return_sequences", 1)) if searches else 1
        self.max_length = int(number("max_length", 4096))
        self.penalty = float(number("length_penalty", 1.0))
        self.pad, self.eos = int(attrs["pad_token_id"]), int(attrs["eos_token_id"])
        self.kind = int(attrs.get("model_type", _WHISPER if task.item.node.op_type == "WhisperBeamSearch" else _GPT))
        self.seed = int(number("seed", 0)) if "seed" in given else int(np.random.default_rng().integers(1, 1 << 31))
        if len(task.outputs) > 3 and task.outputs[3]:
            raise UnsupportedOpError(f"{task.label} has the output cross_qk, which needs caches of a fixed size")
        if self.returned > self.beams or self.beams < 1:
            raise ModelError(
                f"{task.label} returns {self.returned} sequences of {self.beams} beams; "
                "the number of sequences must be at most the number of beams, at least one"
            )
        self.processors = LogitsProcessors(
            eos=self.eos,
            repetition_penalty=float(number("repetition_penalty", 1.0)),
            ngram=int(attrs.get("no_repeat_ngram_size", 0)),
            vocab_mask=given.get("vocab_mask"),
            prefix_mask=given.get("prefix_vocab_mask"),
            min_length=int(number("min_length", 0)),
            temperature=float(attrs.get("temperature", number("temperature", 1.0))),
            presence_mask=given.get("presence_mask"),
            presence_penalty=float(attrs.get("presence_penalty", 0.0)),
            timestamps=self.kind == _WHISPER and int(number("logits_processor", 0)) == 1,
        )

    def run(self) -> list[Any]:
        """Compute the outputs of the node."""
        decoder = _Decoder(self) if self.kind == _GPT else _EncodedDecoder(self)
        if decoder.start.shape[1] >= self.max_length:
            raise ModelError(
                f"{self.task.label} has max_length {self.max_length}; the sequences begin with "
                f"{decoder.start.shape[1]} tokens already"
            )
        return self._search(decoder) if "num_beams" in self.given else self._generate_tokens(decoder)

    def next_token_logits(self, logits: Any) -> Array:
        """Return the float32 logits [rows, V] of the next token, from logits [rows, steps, V]."""
        last = np.asarray(logits)[:, -1].astype(np.float32)
        count = int(self.attrs.get("vocab_size", -1))
        return np.ascontiguousarray(last[:, :count] if count > 0 else last)

    def _search(self, decoder: _Decoder) -> list[Any]:
        batch, start = len(decoder.start), np.repeat(decoder.start, self.beams, axis=0)
        early = bool(self.attrs.get("early_stopping", 0))
        choice = BeamSearch(start, batch, self.beams, self.pad, self.eos, self.penalty, early)
        length, wants_scores = start.shape[1], len(self.task.outputs) > 2 and bool(self.task.outputs[2])
        history: list[Array] = []
        logits, first = decoder.begin(), True
        no_speech = self._no_speech_probabilities(logits)
        while True:
            scores = log_softmax(self.next_token_logits(logits))
            if len(scores) < len(choice.scores):
                scores = np.repeat(scores, self.beams, axis=0)
            self.processors.apply(scores, choice.sequences, first)
            scores += choice.scores[:, None]
            if wants_scores:
                history.append(scores.reshape(batch, self.beams, -1).copy())
            tokens, parents = choice.choose(scores)
            if all(choice.done) or choice.sequences.shape[1] >= self.max_length:
                break
            logits, first = decoder.step(tokens, parents, choice.sequences), False
        found, sums = choice.results(self.returned, self.max_length)
        results: list[Any] = [found, sums]
        if wants_scores:
            whole = np.zeros((self.max_length - length, *history[0].shape), np.float32)
            whole[: len(history)] = history
            results.append(whole)
        return [*results, *[None] * (4 - len(results)), no_speech]

    def _no_speech_probabilities(self, logits: Any) -> Array | None:
        """Return the probabilities [B] of the no-speech token at the first step, if the node has that output."""
        token = int(self.attrs.get("no_speech_token_id", -1))
        if len(self.task.outputs) < 5 or not self.task.outputs[4]:
            return None
        if token < 0:
            raise ModelError(f"{self.task.label} has the output non_speech_probs, but no no_speech_token_id")
        return np.exp(log_softmax(self.next_token_logits(logits)))[:, token]

    def _generate_tokens(self, decoder: _Decoder) -> list[Any]:
        """Generate one sequence for each batch entry, by greedy selection or sampling."""
        draws = self.task.item.node.op_type == "Sampling"
        keep = int(self.attrs.get("min_tokens_to_keep", 0))
        nucleus = NucleusSampler(
            float(self.attrs.get("top_p", 0.0)),
            float(self.attrs.get("filter_value", -1e20)),
            keep,
            bool(self.attrs.get("custom", 0)),
        )
        random, sequences = MinStdRandom(self.seed), decoder.start
        ended = np.zeros(len(sequences), bool)
        logits, first = decoder.begin(), True
        while True:
            scores = self.next_token_logits(logits)
            self.processors.apply(scores, sequences, first)
            tokens = nucleus.draw(scores, random) if draws else scores.argmax(axis=1).astype(np.int32)
            ended |= tokens == self.eos
            tokens = np.where(ended, np.int32(self.pad), tokens)
            sequences = np.concatenate([sequences, tokens[:, None]], axis=1)
            if ended.all() or sequences.shape[1] >= self.max_length:
                break
            logits, first = decoder.step(tokens, np.arange(len(tokens), dtype=np.int32), sequences), False
        result = np.full((len(sequences), self.max_length), self.pad, np.int32)
        result[:, : sequences.shape[1]] = sequences
        return [result, scores]

    def call(self, body: str, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of one run of a graph."""
        of = self.task.bodies[body]
        if len(inputs) != len(of.graph.inputs):
            raise UnsupportedOpError(
                f"{self.task.label} has a {body} of {len(of.graph.inputs)} inputs, expected {len(inputs)}: caches of a "
                "fixed size (past_present_share_buffer) are for GPUs of NVIDIA; export the model without them"
            )
        typed = zip(of.graph.inputs, inputs, strict=True)
        given = [v.astype(i.dtype.np) if type(v) is np.ndarray and i.dtype is not None else v for i, v in typed]
        return of.run(given, self.values, self.runner)


class _Decoder:
    """A decoder-only model (GPT-2): token ids, position ids, mask, then keys and values of each layer in one tensor."""

    def __init__(self, run: _Generation) -> None:
        self.run = run
        self.start = np.asarray(run.task.value(run.values, 0)).astype(np.int32)
        self._caches: list[Any] = []
        given = run.given.get("attention_mask")
        words = np.repeat(self.start != run.pad, run.beams, axis=0)
        self._mask = words.astype(np.int32) if given is None else np.repeat(given.astype(np.int32), run.beams, axis=0)
        # Padding gets no position, whatever the mask says.
        self._positions = np.where(words, np.cumsum(words, axis=1) - 1, 0).astype(np.int32)
        self._length = words.sum(axis=1, dtype=np.int32)

    def begin(self) -> Any:
        """Return the logits of the prompt."""
        run = self.run
        graph = "init_decoder" if "init_decoder" in run.task.bodies else "decoder"
        tokens = np.repeat(self.start, run.beams, axis=0)
        empty = [
            self._empty_cache(v, len(tokens), "2, batch, heads, past, size")
            for v in run.task.bodies[graph].graph.inputs[3:]
        ]
        logits, *self._caches = run.call(graph, [tokens, self._positions, self._mask, *empty])
        return logits

    def _empty_cache(self, info: ValueInfo, rows: int, layout: str) -> Array:
        """Return a cache without positions for input `info`; layout: its axes."""
        axes, shape = layout.split(", "), info.shape or ()
        sizes = [{"2": 2, "batch": rows, "past": 0}.get(axis, d) for axis, d in zip(axes, shape, strict=False)]
        if len(shape) != len(axes) or not all(isinstance(d, int) for d in sizes):
            raise UnsupportedOpError(
                f"{self.run.task.label} has a decoder whose input '{info.name}' is not [{layout}] with known heads and "
                "size"
            )
        return np.zeros(sizes, info.dtype.np if info.dtype is not None else np.float32)

    def step(self, tokens: Array, parents: Array, sequences: Array) -> Any:
        """Return the logits after `tokens`; each continues the sequence of beam `parents`."""
        run = self.run
        self._mask = np.concatenate([self._mask, np.ones((len(tokens), 1), np.int32)], axis=1)
        positions, self._length = self._length[:, None], self._length + 1
        inputs = [tokens[:, None], positions, self._mask, *self._caches]
        graph, order = ("reorder", [parents]) if run.beams > 1 else ("decoder", [])
        logits, *self._caches = run.call(graph, [*inputs, *order])
        return logits


class _EncodedDecoder(_Decoder):
    """The decoder of an encoder-decoder model (T5, Whisper), with caches of self-attention and of cross-attention.

    The encoder returns the first logits and all caches, or the cross-attention caches only.
    """

    def __init__(self, run: _Generation) -> None:
        self.run = run
        self._encoder_input = np.asarray(run.task.value(run.values, 0))
        batch, token = len(self._encoder_input), int(run.attrs.get("decoder_start_token_id", -1))
        given = run.given.get("decoder_input_ids")
        self.start = np.full((batch, 1), token, np.int32) if given is None else given.astype(np.int32)
        self._encoder = run.task.bodies["encoder"].graph
        self._decoder = run.task.bodies["decoder"].graph
        self._fixed_inputs: list[Any] = []  # decoder inputs other than tokens and caches: a mask, encoder states
        self._self_caches: list[Any] = []
        self._cross_caches: list[Any] = []

    def begin(self) -> Any:
        run, beams = self.run, self.run.beams
        masked = any("mask" in v.name for v in self._encoder.inputs)
        inputs: list[Any] = [self._encoder_input]
        if masked:
            mask = self._padding()
            inputs.append(mask)
        begins = len(self._encoder.inputs) > len(inputs)
        if begins:
            inputs.append(self.start)
        if begins != (self._encoder.outputs[0].name == "logits"):
            raise UnsupportedOpError(f"{run.task.label} has an encoder whose first output is not the decoder's logits")
        rows = np.repeat(np.arange(len(self._encoder_input), dtype=np.int32), beams)
        found = run.call("expand", [*inputs, rows])
        names = [v.name for v in self._decoder.inputs]
        if masked and "encoder_attention_mask" in names:
            self._fixed_inputs.append(np.repeat(mask, beams, axis=0))
        has_states = "encoder_hidden_states" in names
        if has_states:
            self._fixed_inputs.append(found[1] if begins else found[0])
        layers = (len(names) - 1 - len(self._fixed_inputs)) // 4
        caches = found[2:] if begins else found[1:] if has_states else found
        if begins:
            self._self_caches, self._cross_caches = list(caches[: 2 * layers]), list(caches[2 * layers :])
            return found[0]
        self._cross_caches = list(caches)
        self_inputs = self._decoder.inputs[1 + len(self._fixed_inputs) : 1 + len(self._fixed_inputs) + 2 * layers]
        self._self_caches = [self._empty_cache(v, len(rows), "batch, heads, past, size") for v in self_inputs]
        tokens = np.repeat(self.start, beams, axis=0)
        return self._decode(tokens, None)

    def _padding(self) -> Array:
        """Return the encoder mask: 1 from the first token on that is no padding."""
        given = self.run.given.get("attention_mask")
        if given is not None:
            return np.asarray(given, np.int32)
        return (np.cumsum(self._encoder_input != self.run.pad, axis=1) > 0).astype(np.int32)

    def step(self, tokens: Array, parents: Array, sequences: Array) -> Any:
        shape = self._decoder.inputs[0].shape
        one = shape is not None and len(shape) == 2 and shape[1] == 1
        return self._decode(tokens[:, None] if one else sequences, parents if self.run.beams > 1 else None)

    def _decode(self, tokens: Array, parents: Array | None) -> Any:
        inputs = [tokens, *self._fixed_inputs, *self._self_caches, *self._cross_caches]
        graph, order = ("decoder", []) if parents is None else ("reorder", [parents])
        logits, *self._self_caches = self.run.call(graph, [*inputs, *order])
        return logits
