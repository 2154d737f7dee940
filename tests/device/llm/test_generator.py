"""Generation from exported folders: tokens equal onnxruntime's, and options of the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnx
import opalite
from opalite.errors import InputError, OptionError

from ...helpers import encoder_decoders
from ...helpers.decoders import KINDS, WORDS, feeds_of
from ...helpers.words import END, letters, make_folder

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
PROMPT = "Once (5)"


def open_reference(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def greedy(logits_of: Callable[[list[int]], Any], begin: list[int], steps: int, penalty: float = 1.0) -> list[int]:
    """Return the greedy tokens of a model that reads all tokens in each step."""
    tokens = list(begin)
    for _ in range(steps):
        row = np.array(logits_of(tokens)[0, -1])
        seen = sorted(set(tokens))
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
        tokens.append(int(row.argmax()))
    return tokens[len(begin) :]


def whole(kind: str) -> Callable[[list[int]], Any]:
    """Return onnxruntime's logits of all tokens at once, without caches."""
    session = open_reference(KINDS[kind]())
    past = {}
    for i in session.get_inputs():
        if i.name.startswith(("past", "cache")):
            shape = [d if isinstance(d, int) else 1 if d == "batch_size" else 0 for d in i.shape]
            past[i.name] = np.zeros(shape, np.float32)
    flag = {"use_cache_branch": np.array([False])} if kind == "merged" else {}
    return lambda tokens: session.run(["logits"], {**feeds_of(kind, [tokens], 0), **past, **flag})[0]


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_onnxruntime(kind: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {"model.onnx": KINDS[kind]()})
    with opalite.Generator(folder) as generator:
        begin = generator.tokenizer.encode(PROMPT)
        found = generator.generate(PROMPT, max_tokens=20, ignore_end=True)
        assert list(found.tokens) == greedy(whole(kind), begin, 20)
        assert found.text == letters(list(found.tokens))
        assert found.reason == "length"
        again = generator.generate(PROMPT, max_tokens=9, ignore_end=True, repetition_penalty=1.4)
        assert list(again.tokens) == greedy(whole(kind), begin, 9, 1.4)


@pytest.fixture
def generator(tmp_path: Path) -> Any:
    """A decoder whose folder has no generation settings."""
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": KINDS["llama"]()})) as made:
        yield made


def test_what_prompts_share_is_read_once(generator: opalite.Generator) -> None:
    first = generator.generate(PROMPT, max_tokens=6, ignore_end=True)
    assert (first.metrics.prompt_tokens, first.metrics.reused_tokens) == (len(PROMPT), 0)
    longer = PROMPT + first.text[:4]
    second = generator.generate(longer, max_tokens=6, ignore_end=True)
    assert second.metrics.reused_tokens >= len(PROMPT)
    assert list(second.tokens) == greedy(whole("llama"), generator.tokenizer.encode(longer), 6)
    other = generator.generate("Once upon", max_tokens=6, ignore_end=True)
    assert other.metrics.reused_tokens == len("Once ")
    assert list(other.tokens) == greedy(whole("llama"), generator.tokenizer.encode("Once upon"), 6)
    same = generator.generate("Once upon", max_tokens=6, ignore_end=True)
    assert same.metrics.reused_tokens == len("Once upon") - 1
    assert same.tokens == other.tokens


@pytest.mark.parametrize("logits", ["logits", "scores"])
def test_a_long_prompt_is_read_in_pieces(logits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that holds logits is computed for its last position only."""
    monkeypatch.setattr("opalite.llm.decoder._CHUNK_BYTES", 1)
    model = onnx.ModelProto.FromString(KINDS["llama"]())
    for node in model.graph.node:
        node.output[:] = [logits if n == "logits" else n for n in node.output]
    model.graph.output[0].name = logits
    tokens = [1 + i * 7 % (WORDS - 1) for i in range(600)]
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": model.SerializeToString()})) as generator:
        shape = next(a.shape for a in generator.session.get_outputs() if a.name == logits)
        assert (shape[1] == 1) == (logits == "logits")
        generator.generate(tokens[:3], max_tokens=1)
        found = generator.generate(tokens, max_tokens=3, ignore_end=True)
    assert list(found.tokens) == greedy(whole("llama"), tokens, 3)


def test_a_stream_may_be_closed_and_another_follows(generator: opalite.Generator) -> None:
    stream = generator.stream(PROMPT, max_tokens=50, ignore_end=True)
    pieces = [next(stream) for _ in range(3)]
    other = generator.stream(PROMPT, max_tokens=3, ignore_end=True)
    assert stream.reason == "closed"
    assert list(stream) == []
    assert "".join(pieces) == "".join(other)[: len("".join(pieces))]
    assert other.metrics.cache_bytes > 0
    assert other.metrics.weight_bytes > 0
    assert other.metrics.decode_rate > 0


def test_equal_seeds_give_equal_texts(generator: opalite.Generator) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "top_p": 0.95, "max_tokens": 24, "ignore_end": True}
    one, two = (generator.generate(PROMPT, seed=11, **options) for _ in range(2))
    three = generator.generate(PROMPT, seed=12, **options)
    assert one.tokens == two.tokens != three.tokens
    assert generator.generate(PROMPT, seed=5, **options | {"temperature": 0}).tokens == tuple(
        greedy(whole("llama"), generator.tokenizer.encode(PROMPT), 24)
    )


def test_text_ends_where_it_is_told_to(generator: opalite.Generator, tmp_path: Path) -> None:
    free = generator.generate(PROMPT, max_tokens=20, ignore_end=True)
    string = free.text[7:9]
    stopped = generator.generate(PROMPT, max_tokens=20, ignore_end=True, stop=["no such text", string])
    assert (stopped.text, stopped.reason) == (free.text[: free.text.index(string)], "stop")
    end = free.tokens[5]
    folder = make_folder(tmp_path / "ends", {"model.onnx": KINDS["llama"]()}, generation_config={"eos_token_id": [end]})
    with opalite.Generator(folder) as made:
        ended = made.generate(PROMPT, max_tokens=20)
        assert ended.reason == "end"
        assert ended.tokens == free.tokens[: free.tokens.index(end) + 1]
        assert made.generate(PROMPT, max_tokens=20, ignore_end=True).tokens == free.tokens


def test_the_folder_says_how_to_generate(tmp_path: Path) -> None:
    told = {"max_new_tokens": 5, "do_sample": True, "temperature": 0.9, "top_k": 4, "suppress_tokens": [9, 10]}
    folder = make_folder(
        tmp_path,
        {"model.onnx": KINDS["llama"]()},
        generation_config=told,
        config={"max_position_embeddings": 12, "eos_token_id": END},
        tokenizer_config={"chat_template": "{% for m in messages %}[{{ m.role[0] }}:{{ m.content }}]{% endfor %}>"},
    )
    with opalite.Generator(folder) as made:
        found = made.generate("ab", seed=1)
        assert found.tokens == made.generate("ab", seed=1, temperature=0.9, top_k=4).tokens
        assert len(found.tokens) <= 5
        assert made.generate("abcdefghij", seed=1, ignore_end=True).metrics.tokens == 2  # what the model can see
        with pytest.raises(InputError, match=r"12 tokens, the model.s context length is 12"):
            made.stream("abcdefghijkl")
        chat = made.stream("a", chat=True, system="b", seed=1)
        assert chat.metrics.prompt_tokens == len("[s:b][u:a]>")
        for seed in range(8):
            assert not {9, 10} & set(made.generate("ab", seed=seed, ignore_end=True, temperature=3.0, top_k=0).tokens)


def test_a_chat_begins_as_its_template_does(tmp_path: Path) -> None:
    import tokenizers

    template = {"chat_template": "{% for m in messages %}[{{ m.content }}]{% endfor %}"}
    folder = make_folder(tmp_path, {"model.onnx": KINDS["llama"]()}, tokenizer_config=template)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin = tokenizers.processors.TemplateProcessing(single="<end> $A", special_tokens=[("<end>", END)])
    tokenizer.post_processor = begin
    tokenizer.save(str(folder / "tokenizer.json"))
    with opalite.Generator(folder) as made:
        assert made.stream("abc").metrics.prompt_tokens == 4
        assert made.stream("abc", chat=True).metrics.prompt_tokens == len("[abc]")


def test_a_decoder_that_takes_one_token_at_a_time(tmp_path: Path) -> None:
    whole_model = onnx.load_model_from_string(KINDS["llama"]())
    for i in whole_model.graph.input:
        if i.name in ("input_ids", "position_ids"):
            i.type.tensor_type.shape.dim[1].dim_value = 1
    with opalite.Generator(make_folder(tmp_path, {"model.onnx": whole_model.SerializeToString()})) as made:
        found = made.generate(PROMPT, max_tokens=6, ignore_end=True)
        assert list(found.tokens) == greedy(whole("llama"), made.tokenizer.encode(PROMPT), 6)


def encoder_decoder(files: Mapping[str, bytes], folder: Path, *, reads_text: bool) -> Path:
    every = {"encoder_model.onnx": encoder_decoders.encoder(reads_text=reads_text), **files}
    if "text.onnx" not in files:
        return make_folder(folder, every, config={"decoder_start_token_id": END})
    # As onnxruntime-genai has it, the encoder gives the keys and values of its output.
    every["sound.onnx"] = encoder_decoders.encoder(reads_text=reads_text, caches=True)
    caches = {f"{n}_names": f"past_key_values.%d.decoder.{n.rpartition('_')[2]}" for n in ("past_key", "past_value")}
    given = {n.replace("past", "present"): p.replace("past_key_values", "present") for n, p in caches.items()}
    parts = {
        "decoder": {"filename": "text.onnx", "inputs": caches, "outputs": given},
        "encoder": {"filename": "sound.onnx"},
    }
    return make_folder(folder, every, genai_config={"model": {"decoder_start_token_id": END, **parts}})


SEPARATE = {
    "decoder_model.onnx": encoder_decoders.decoder(with_past=False),
    "decoder_with_past_model.onnx": encoder_decoders.decoder(with_past=True),
}
FILES = {
    "merged": {"decoder_model_merged.onnx": encoder_decoders.merged()},
    "separate": SEPARATE,
    "no cache": {"decoder_model.onnx": SEPARATE["decoder_model.onnx"]},
    "genai": {"text.onnx": SEPARATE["decoder_with_past_model.onnx"]},
}


@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("reads_text", [True, False], ids=["text", "sound"])
def test_encoder_decoders(files: str, reads_text: bool, tmp_path: Path) -> None:
    folder = encoder_decoder(FILES[files], tmp_path, reads_text=reads_text)
    sound = np.random.default_rng(3).standard_normal((1, 11, encoder_decoders.FEATURES)).astype(np.float32)
    encoder = open_reference(encoder_decoders.encoder(reads_text=reads_text))
    decoder = open_reference(SEPARATE["decoder_model.onnx"])
    with opalite.Generator(folder) as made:
        for text in ("translate", "other"):  # nothing of the first is left in the second
            ids = np.array([made.tokenizer.encode(text)])
            read = {"input_ids": ids, "attention_mask": np.ones_like(ids)} if reads_text else {"input_features": sound}
            (hidden,) = encoder.run(None, read)
            held = {"encoder_hidden_states": hidden, "encoder_attention_mask": np.ones(hidden.shape[:2], np.int64)}

            def logits_of(tokens: list[int], held: Any = held) -> Any:
                return decoder.run(["logits"], {"input_ids": np.array([tokens]), **held})[0]

            begin = [END] if reads_text else [END, *made.tokenizer.encode(text)]
            options: dict[str, Any] = {} if reads_text else {"encoder_inputs": {"input_features": sound}}
            found = made.generate(text, max_tokens=12, ignore_end=True, **options)
            assert list(found.tokens) == greedy(logits_of, begin, 12)


def test_what_an_encoder_reads_is_asked_for(tmp_path: Path) -> None:
    with (
        opalite.Generator(encoder_decoder(FILES["merged"], tmp_path, reads_text=False)) as made,
        pytest.raises(InputError, match=r"reads 'input_features' .*--load-inputs input_features=FILE"),
    ):
        made.stream("")


def test_a_call_without_a_generator(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {"model.onnx": KINDS["grouped"]()})
    found = opalite.generate(folder, PROMPT, max_tokens=4, ignore_end=True)
    assert list(found.tokens) == greedy(whole("grouped"), [decoders_token(c) for c in PROMPT], 4)
    assert str(found) == found.text


def decoders_token(letter: str) -> int:
    return ord(letter) - 31


def test_what_does_not_fit_is_said(generator: opalite.Generator) -> None:
    with pytest.raises(InputError, match="the prompt is empty"):
        generator.stream("")
    with pytest.raises(InputError, match="a prompt is text, numbers of tokens or messages"):
        generator.stream([1.5])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="max_tokens is a number from 1 on"):
        generator.stream("a", max_tokens=0)
    with pytest.raises(InputError, match="has no encoder that could read input_features"):
        generator.stream("a", encoder_inputs={"input_features": np.zeros(1)})


def test_biases_penalties_and_logprobs(generator: opalite.Generator) -> None:
    plain = generator.generate("Once", max_tokens=6, ignore_end=True)
    stream = generator.stream("Once", max_tokens=6, ignore_end=True, logprobs=3)
    assert "".join(stream) == plain.text
    assert tuple(stream.tokens) == plain.tokens
    assert [p.token for p in stream.logprobs] == list(plain.tokens)
    assert all(p.top[0] == (p.token, p.logprob) and len(p.top) == 3 for p in stream.logprobs), "greedy"
    other = next(t for t, _ in stream.logprobs[0].top if t != plain.tokens[0])
    forced = generator.generate("Once", max_tokens=6, ignore_end=True, logit_bias={other: 100.0})
    assert set(forced.tokens) == {other}
    varied = generator.generate("Once", max_tokens=6, ignore_end=True, logit_bias={other: 2.0}, presence_penalty=2.0)
    assert varied.tokens[0] != varied.tokens[1] or varied.tokens[0] != other


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([3, WORDS], rf"the token {WORDS}, and the model's tokens are 0 to {WORDS - 1}"),
        ([-1], "the token -1"),
        (None, "a prompt is text, .* got None"),
        (5, "a prompt is text, .* got 5"),
        ([1.5], "a prompt is text, .* got"),
        (b"a", "a prompt is text, .* got b'a'"),
        (np.array([[1, 2]]), "a prompt is text, .* got array"),
        ([True], "a prompt is text, .* got"),
    ],
)
def test_prompts_that_are_none(prompt: Any, says: str, generator: opalite.Generator) -> None:
    with pytest.raises(InputError, match=says):
        generator.generate(prompt)
