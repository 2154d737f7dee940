"""BeamSearch, GreedySearch, Sampling and WhisperBeamSearch: onnxruntime's tokens and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ModelError, UnsupportedOpError
from opalite.importer.host.token_search import LogitsProcessors, MinStdRandom

from ....helpers.generators import HEADS, SIZE, WORDS, encoder_decoder, gpt, search_model
from ....helpers.numpy_session import NumpySession

Array = np.ndarray[Any, Any]
ENDS = {"eos_token_id": 1, "pad_token_id": 0}


def i32(*values: int) -> Array:
    return np.array(values, np.int32)


def prompt(seed: int, length: int = 4) -> Array:
    """Return two rows of tokens, the second padded at the front."""
    ids = np.random.default_rng(seed).integers(2, WORDS, (2, length)).astype(np.int32)
    ids[1, :2] = 0
    return ids


def beam_inputs(first: Array, **given: Any) -> list[tuple[str, Any]]:
    """Return the inputs of BeamSearch in order, as tensors; onnxruntime needs min_length and length_penalty."""
    defaults = {"max_length": 12, "min_length": 0, "num_beams": 3, "num_return_sequences": 1, "length_penalty": 1.0}
    names = (*defaults, "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids")
    values = {**defaults, **given}

    def tensor(v: Any) -> Any:
        return np.array([v], np.float32 if isinstance(v, float) else np.int32) if isinstance(v, (int, float)) else v

    return [("input_ids", first), *((n, tensor(values.get(n))) for n in names)]


def compare(op: str, inputs: list[tuple[str, Any]], outputs: list[str], **attrs: Any) -> None:
    ort = pytest.importorskip("onnxruntime")
    model, feeds = search_model(op, inputs, outputs, **{**ENDS, **attrs})
    options = ort.SessionOptions()
    options.log_severity_level = 4
    want = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    for g, w in zip(NumpySession(model).run(feeds), want, strict=True):
        if w is not None and w.dtype.kind == "i":
            np.testing.assert_array_equal(g, w)
        elif w is not None:
            np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-3)


WITHOUT_SOME = np.ones(WORDS, np.int32)
WITHOUT_SOME[3:6] = 0
AT_FIRST = np.ones((2, WORDS), np.int32)
AT_FIRST[0, 2:9] = 0
SEEN = np.ones((2, 4), np.int32)
SEEN[0, 0] = 0

BEAMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "several": ({"num_return_sequences": 3, "length_penalty": 0.3}, {}),
    "one beam": ({"num_beams": 1}, {}),
    "early": ({"length_penalty": 2.0, "num_return_sequences": 2}, {"early_stopping": 1, "eos_token_id": 4}),
    "repetition": ({"repetition_penalty": 1.7}, {}),
    "ngrams": ({}, {"no_repeat_ngram_size": 2}),
    "single tokens": ({"max_length": 9}, {"no_repeat_ngram_size": 1}),
    "masks": ({"vocab_mask": WITHOUT_SOME, "prefix_vocab_mask": AT_FIRST}, {}),
    "attention mask": ({"attention_mask": SEEN}, {}),
    "shortest": ({"min_length": 9}, {}),
}


@pytest.mark.parametrize("case", BEAMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_beam_search_of_a_decoder(case: str, seed: int) -> None:
    given, attrs = BEAMS[case]
    inputs = beam_inputs(prompt(seed), **given)
    compare("BeamSearch", inputs, ["sequences", "sequences_scores"], decoder=gpt(seed), **attrs)


def test_scores_of_every_step() -> None:
    """All steps run, because onnxruntime leaves scores of later steps uninitialised."""
    inputs = beam_inputs(prompt(2)[:1], max_length=8, min_length=7)
    compare("BeamSearch", inputs, ["sequences", "sequences_scores", "scores"], decoder=gpt(2))


@pytest.mark.parametrize("case", [c for c in BEAMS if c != "masks"])
@pytest.mark.parametrize("begins", [True, False])
def test_beam_search_of_an_encoder_and_a_decoder(case: str, begins: bool) -> None:
    given, attrs = BEAMS[case]
    encoder, decoder = encoder_decoder(3, 2, begins=begins)
    graphs = {"encoder": encoder, "decoder": decoder, "model_type": 1, "decoder_start_token_id": 2}
    compare("BeamSearch", beam_inputs(prompt(3), **given), ["sequences", "sequences_scores"], **graphs, **attrs)


@pytest.mark.parametrize("start", [None, [[2, 5, 6], [2, 5, 7]]])
@pytest.mark.parametrize("op", ["BeamSearch", "WhisperBeamSearch"])
def test_beam_search_of_sound(op: str, start: Any) -> None:
    encoder, decoder = encoder_decoder(4, 2, sound=True)
    sound = np.random.default_rng(4).standard_normal((2, 6, 7)).astype(np.float32)
    ids = None if start is None else np.array(start, np.int32)
    inputs = beam_inputs(sound, num_return_sequences=2, repetition_penalty=1.2, decoder_input_ids=ids)
    if op == "WhisperBeamSearch":
        inputs += [("logits_processor", None), ("cross_qk_layer_head", None), ("extra_decoding_ids", None)]
        inputs += [("temperature", np.array([0.7], np.float32))]
    attrs = {"encoder": encoder, "decoder": decoder, "model_type": 2, "decoder_start_token_id": 2}
    compare(op, inputs, ["sequences", "sequences_scores"], **attrs)


GREEDY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "rules": ({"repetition_penalty": np.array([2.0], np.float32)}, {"no_repeat_ngram_size": 3}),
    "another end": ({}, {"eos_token_id": 5, "pad_token_id": 2}),
    "masks": ({"vocab_mask": WITHOUT_SOME, "prefix_vocab_mask": AT_FIRST, "attention_mask": SEEN}, {}),
    "shortest": ({"min_length": i32(8)}, {}),
}


@pytest.mark.parametrize("case", GREEDY)
@pytest.mark.parametrize("first", [False, True])
def test_greedy_search(case: str, first: bool) -> None:
    given, attrs = GREEDY[case]
    names = ("min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
    inputs = [("input_ids", prompt(5)), ("max_length", i32(12)), *((n, given.get(n)) for n in names)]
    graphs = {"decoder": gpt(5), **({"init_decoder": gpt(5)} if first else {})}
    compare("GreedySearch", inputs, ["sequences"], **graphs, **attrs)


@pytest.mark.parametrize("seed", [1, 7])
@pytest.mark.parametrize(
    "attrs",
    [
        {"top_p": 0.8},
        {"top_p": 0.5, "temperature": 0.6},
        {"top_p": 0.7, "custom": 1},
        {"top_p": 0.3, "min_tokens_to_keep": 4},
        {"top_p": 1.0},
    ],
)
def test_sampling(seed: int, attrs: dict[str, Any]) -> None:
    absent = ("min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "presence_mask")
    inputs: list[tuple[str, Any]] = [("input_ids", prompt(6)), ("max_length", i32(12))]
    inputs += [*((n, None) for n in absent), ("seed", i32(seed))]
    compare("Sampling", inputs, ["sequences"], decoder=gpt(6), **attrs)


def test_two_runs_with_prompts_of_other_lengths() -> None:
    """The decoder's plans serve every length."""
    inputs = beam_inputs(prompt(7), max_length=20)
    model, feeds = search_model("BeamSearch", inputs, ["sequences"], decoder=gpt(7), **ENDS)
    session = NumpySession(model)
    session.run(feeds)
    made = len(session.imported)
    session.run({"input_ids": prompt(8, 7)})
    assert len(session.imported) == made


def test_prompts_beyond_the_longest_sequence_are_refused() -> None:
    model, feeds = search_model("BeamSearch", beam_inputs(prompt(0), max_length=4), ["s"], decoder=gpt(0), **ENDS)
    with pytest.raises(ModelError, match="max_length 4"):
        NumpySession(model).run(feeds)


def test_caches_of_a_fixed_size_are_refused() -> None:
    decoder = gpt(0)
    decoder.input.add().CopyFrom(decoder.input[0])
    decoder.input[-1].name = "past_sequence_length"
    model, feeds = search_model("BeamSearch", beam_inputs(prompt(0)), ["sequences"], decoder=decoder, **ENDS)
    with pytest.raises(UnsupportedOpError, match="known heads"):
        NumpySession(model).run(feeds)


def test_whisper_s_times_come_in_pairs() -> None:
    """After the first timestamp comes text; after text and one timestamp comes the same or a later one, or the end."""
    eos = 10
    begin, words = eos + 107, eos + 107 + 60
    rules = LogitsProcessors(eos=eos, timestamps=True)

    def allowed(*sequence: int) -> Array:
        scores = np.zeros((1, words), np.float32)
        rules.apply(scores, np.array([sequence], np.int32), first=False)
        return np.flatnonzero(scores[0] == 0)

    assert allowed(3, 4).max() == begin + 50  # the first time is an early one
    assert allowed(3, begin + 2).max() < begin
    after = allowed(3, begin + 2, 5, begin + 7)
    assert after.min() == eos
    assert not set(range(begin, begin + 7)) & set(after.tolist())
    assert {begin + 7, begin + 8} <= set(after.tolist())


def test_chance_is_that_of_libstdc() -> None:
    """The ten-thousandth number of minstd_rand0 from seed 1, as in the C++ standard."""
    chance = MinStdRandom(1)
    for _ in range(9999):
        chance._draw()
    assert chance._draw() + 1 == 1043618065
    assert 0 <= chance.uniform() < 1


def test_the_graphs_have_the_shapes_that_converters_write() -> None:
    assert [d.dim_value for d in gpt(0).input[3].type.tensor_type.shape.dim if d.dim_value] == [2, HEADS, SIZE]
