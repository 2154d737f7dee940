"""Several texts at once: each is the one that its prompt gives alone, whenever it joins and leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.models.llama import LLAMA_TINY, decoder

import onnx
import opalite
from onnx import TensorProto, helper
from opalite.errors import OptionError

from ...helpers.decoders import KINDS
from ...helpers.words import make_folder

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
PROMPTS = ["Once (5)", "a", "The king of the north wind", "zz", "x" * 90]
LENGTHS = [9, 14, 4, 11, 6]
SAMPLED: dict[str, Any] = {"temperature": 1.2, "top_k": 20, "repetition_penalty": 1.3, "seed": 3}
Make = Callable[[bytes], opalite.Generator]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[opalite.Generator] = []

    def open_model(model: bytes) -> opalite.Generator:
        made.append(opalite.Generator(make_folder(tmp_path / "model", {"model.onnx": model})))
        return made[-1]

    yield open_model
    for each in made:
        each.close()


def low_bit(cache: str) -> bytes:
    """A decoder with MatMulNBits of 4 bits."""
    return decoder(LLAMA_TINY, "batch", bits=4, cache=cache).SerializeToString()


MODELS: dict[str, Callable[[], bytes]] = {
    "concat": KINDS["llama"],
    "grouped": KINDS["grouped"],
    "window": lambda: KINDS["grouped"](window=16),
    "scattered": KINDS["scattered"],
    "int4 concat": lambda: low_bit("concat"),
    "int4 grouped": lambda: low_bit("grouped"),
}


@pytest.mark.parametrize("name", MODELS)
def test_texts_that_join_and_leave(name: str, make: Make) -> None:
    generator = make(MODELS[name]())
    batch = generator.texts
    assert batch.refusal == ""
    options = [{"max_tokens": n, "ignore_end": True, **({} if i % 2 else SAMPLED)} for i, n in enumerate(LENGTHS)]
    texts = [generator.new_text(p, **o) for p, o in zip(PROMPTS, options, strict=True)]
    written = dict.fromkeys(texts, "")
    most, steps = 0, 0
    while steps < 3 * len(texts) or not batch.is_idle:
        if steps % 3 == 0 and steps < 3 * len(texts):
            batch.add(texts[steps // 3])
        for text, piece in batch.step():
            written[text] += piece
        most = max(most, len(batch.texts))
        assert batch._batch is not None
        assert batch._batch.copies == ""
        steps += 1
    assert most >= 3
    assert steps < sum(LENGTHS)
    for prompt, own, text in zip(PROMPTS, options, texts, strict=True):
        alone = generator.generate(prompt, **own)
        assert (written[text], tuple(text.tokens)) == (alone.text, alone.tokens)
        assert text.reason == "length"


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[opalite.Generator]:
    folder = make_folder(tmp_path_factory.mktemp("writer"), {"model.onnx": KINDS["llama"]()})
    with opalite.Generator(folder) as made:
        yield made


def test_several_prompts(generator: opalite.Generator) -> None:
    prompts = PROMPTS[:3]
    alone = [generator.generate(p, max_tokens=8, ignore_end=True) for p in prompts]
    found = generator.generate(prompts, max_tokens=8, ignore_end=True)
    assert [t.tokens for t in found] == [t.tokens for t in alone]
    tokens = generator.generate([generator.tokenizer.encode(p) for p in prompts], max_tokens=8, ignore_end=True)
    assert [t.text for t in tokens] == [t.text for t in alone]
    pieces: dict[int, str] = {}
    turns = []
    streams = generator.streams(prompts, max_tokens=8, ignore_end=True)
    for number, piece in streams:
        pieces[number] = pieces.get(number, "") + piece
        turns.append(number)
    assert [pieces[i] for i in range(3)] == [t.text for t in alone]
    assert turns != sorted(turns)
    assert [t.reason for t in streams.texts] == ["length"] * 3
    first = generator.streams(prompts, max_tokens=50, ignore_end=True)
    next(first)
    assert generator.generate(prompts[1], max_tokens=8, ignore_end=True).text == alone[1].text
    assert [t.reason for t in first.texts] == ["closed"] * 3


def test_texts_of_one_prompt_share_its_caches(generator: opalite.Generator) -> None:
    options: dict[str, Any] = {"max_tokens": 8, "temperature": 1.5, "ignore_end": True}
    found = generator.generate(PROMPTS[0], n=3, seed=7, **options)
    each = [generator.generate(PROMPTS[0], seed=7 + i, **options) for i in range(3)]
    assert [t.tokens for t in found] == [t.tokens for t in each]
    assert [t.metrics.reused_tokens for t in found[1:]] == [len(PROMPTS[0]) - 1] * 2
    with pytest.raises(OptionError, match="n is a number of texts"):
        generator.generate(PROMPTS[0], n=0)


def test_an_error_of_one_text_ends_that_text(generator: opalite.Generator) -> None:
    batch, options = generator.texts, {"max_tokens": 6, "ignore_end": True}
    good = generator.new_text(PROMPTS[0], max_tokens=6, ignore_end=True)
    bad = generator.new_text(PROMPTS[1], max_tokens=6, logit_bias={10**6: 1.0})
    counted = generator.new_text(PROMPTS[2], max_tokens=6, ignore_end=True, presence_penalty=1.0, logprobs=2)
    for text in (good, bad, counted):
        batch.add(text)
    while not batch.is_idle:
        batch.step()
    assert (good.reason, bad.reason, counted.reason) == ("length", "failed", "length")
    assert "token 1000000" in str(bad.failure)
    assert tuple(good.tokens) == generator.generate(PROMPTS[0], **options).tokens  # type: ignore[arg-type]
    alone = generator.stream(PROMPTS[2], max_tokens=6, ignore_end=True, presence_penalty=1.0, logprobs=2)
    assert "".join(alone)
    assert [p.token for p in counted.logprobs] == [p.token for p in alone.logprobs] == counted.tokens
    with pytest.raises(OptionError, match="token 1000000"):
        generator.generate([PROMPTS[0], PROMPTS[1]], max_tokens=6, logit_bias={10**6: 1.0})


def test_a_model_that_counts_positions_itself_has_one_text_at_a_time(make: Make) -> None:
    model = onnx.load_model_from_string(KINDS["llama"](layers=1))
    graph = model.graph
    graph.input.remove(next(i for i in graph.input if i.name == "position_ids"))
    for name, value in (("ones", [1]), ("zero", 0), ("one", 1)):
        kind = helper.make_tensor(name, TensorProto.INT64, [len(value)] if isinstance(value, list) else [], [value])
        graph.initializer.append(kind)
    nodes = [
        helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
        helper.make_node("Shape", ["input_ids"], ["ids_shape"]),
        helper.make_node("Gather", ["mask_shape", "one"], ["total"]),
        helper.make_node("Gather", ["ids_shape", "one"], ["count"]),
        helper.make_node("Sub", ["total", "count"], ["past_count"]),
        helper.make_node("Range", ["past_count", "total", "one"], ["places"]),
        helper.make_node("Unsqueeze", ["places", "first_axis"], ["row_of_places"]),
        helper.make_node("Expand", ["row_of_places", "ids_shape"], ["position_ids"]),
    ]
    graph.initializer.append(helper.make_tensor("first_axis", TensorProto.INT64, [1], [0]))
    for node in reversed(nodes):
        graph.node.insert(0, node)
    generator = make(model.SerializeToString())
    assert "positions" in generator.texts.refusal
    alone = [generator.generate(p, max_tokens=5, ignore_end=True).tokens for p in PROMPTS[:2]]
    assert [t.tokens for t in generator.generate(PROMPTS[:2], max_tokens=5, ignore_end=True)] == alone


def test_slots_that_come_into_use_again(generator: opalite.Generator) -> None:
    """The step of so many texts is known then: nothing is planned, and caches stay in memory that is given back."""
    options: dict[str, Any] = {"max_tokens": 6, "ignore_end": True}
    for _ in range(2):
        generator.generate(PROMPTS[:3], **options)
        generator.session.settle()
    plans, batch = generator.session.stats().plans_made, generator.texts._batch
    assert batch is not None
    assert batch.capacity == batch.cache_bytes == 0
    states = dict(batch._states)
    generator.generate(PROMPTS[:3], **options)
    assert generator.session.stats().plans_made == plans
    assert batch._states == states
    assert all(state.nbytes == 0 and state._caches.runs.has_fast_path for n, state in states.items() if n == 4)


def test_a_text_that_stays_alone_leaves_its_slot(generator: opalite.Generator) -> None:
    batch = generator.texts
    long = generator.new_text(PROMPTS[0], max_tokens=60, ignore_end=True)
    shorts = [generator.new_text(p, max_tokens=3, ignore_end=True) for p in PROMPTS[1:4]]
    for text in (long, *shorts):
        batch.add(text)
    batch.step()
    assert batch._batch is not None
    assert (batch._batch.capacity, len(batch.texts)) == (4, 4)
    while not long.reason:
        batch.step()
    assert batch._batch.capacity == 0
    assert tuple(long.tokens) == generator.generate(PROMPTS[0], max_tokens=60, ignore_end=True).tokens
