"""OpenAI's API, asked by its own client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opalite
from opalite.cl.runtime import Runtime

openai = pytest.importorskip("openai", reason="the package openai is not installed")
pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")

from opalite.serve.engine.inference_server import Server  # noqa: E402
from opalite.serve.engine.model_config import ServerSettings  # noqa: E402
from opalite.serve.http.http_server import HttpFront, HttpSettings  # noqa: E402
from opalite.serve.run_servers import serving  # noqa: E402

from ....docs.commands import ROOT  # noqa: E402
from ....helpers.decoders import KINDS  # noqa: E402
from ....helpers.scripted_decoder import scripted  # noqa: E402
from ....helpers.words import END, LETTERS, make_folder  # noqa: E402

PROMPT = "Once upon"
TEMPLATE = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}={{ c.function.arguments.a }}{% endfor %}"
    "{% endfor %}<assistant>"
)
MORE = {"extra_body": {"ignore_eos": True}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("add", "subtract")
]
CALL = '<tool_call>{{"name": "{}", "arguments": {{"a": {}}}}}</tool_call>'
WRITTEN = "I add. " + CALL.format("add", 1) + CALL.format("subtract", 2)
"""The answer of the model `caller` to the message `ASKED` with `TOOLS`."""
ASKED = [{"role": "user", "content": "Hi"}]
PAST = [
    *ASKED,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_folder(tmp_path_factory.mktemp("writer"), {"model.onnx": KINDS[next(iter(KINDS))]()})
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that calls functions."""
    prompt = "[add][subtract]<user>Hi<assistant>"
    files = {"model.onnx": scripted(WRITTEN, len(prompt))}
    made = make_folder(tmp_path_factory.mktemp("caller"), files, config={"eos_token_id": END})
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


@pytest.fixture(scope="module")
def generator(rt: Runtime, folder: Path) -> Iterator[opalite.Generator]:
    with opalite.Generator(folder, device=rt.info.id) as made:
        yield made


@pytest.fixture(scope="module")
def client(rt: Runtime, folder: Path, caller: Path) -> Iterator[Any]:
    settings = ServerSettings(models={"writer": folder, "caller": caller}, devices=(rt.info.id,))
    with (
        serving(lambda: Server(settings), [HttpFront(HttpSettings(port=0))], 20) as (address,),
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120) as made,
    ):
        yield made


def test_models(client: Any) -> None:
    assert sorted(m.id for m in client.models.list()) == ["caller", "writer"]
    assert client.models.retrieve("writer").owned_by == "opalite"
    with pytest.raises(openai.NotFoundError) as e:
        client.models.retrieve("reader")
    assert (e.value.param, e.value.code) == ("model", "model_not_found")


def test_completions(client: Any, generator: opalite.Generator) -> None:
    wanted = generator.generate(PROMPT, max_tokens=8, ignore_end=True)
    found = client.completions.create(model="writer", prompt=PROMPT, max_tokens=8, **MORE)
    assert (found.object, found.choices[0].text, found.choices[0].finish_reason) == (
        "text_completion",
        wanted.text,
        "length",
    )
    tokens = generator.tokenizer.encode(PROMPT)
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (len(tokens), 8)
    same = client.completions.create(model="writer", prompt=tokens, max_tokens=8, echo=False, **MORE)
    assert same.choices[0].text == wanted.text
    both = client.completions.create(model="writer", prompt=[PROMPT, "x"], max_tokens=8, echo=True, **MORE)
    assert both.choices[0].text == PROMPT + wanted.text
    assert both.choices[1].text.startswith("x")
    assert [c.index for c in both.choices] == [0, 1]
    stopped = client.completions.create(model="writer", prompt=PROMPT, max_tokens=8, stop=[wanted.text[2:4]], **MORE)
    assert wanted.text.startswith(stopped.choices[0].text)
    assert stopped.choices[0].finish_reason == "stop"


def test_completions_in_a_stream(client: Any, generator: opalite.Generator) -> None:
    wanted = generator.generate(PROMPT, max_tokens=8, ignore_end=True)
    events = list(
        client.completions.create(
            model="writer", prompt=PROMPT, max_tokens=8, stream=True, stream_options={"include_usage": True}, **MORE
        )
    )
    assert "".join(e.choices[0].text for e in events if e.choices) == wanted.text
    assert [e.choices[0].finish_reason for e in events if e.choices][-1] == "length"
    assert events[-1].usage.completion_tokens == 8
    assert len({e.id for e in events}) == 1


def test_choices_differ_by_seed(client: Any) -> None:
    def texts() -> list[str]:
        found = client.completions.create(
            model="writer", prompt=PROMPT, max_tokens=12, n=3, temperature=1.8, seed=5, **MORE
        )
        return [c.text for c in found.choices]

    first = texts()
    assert first == texts()
    assert len(set(first)) > 1


def test_logprobs_biases_and_penalties(client: Any) -> None:
    found = client.completions.create(model="writer", prompt=PROMPT, max_tokens=4, logprobs=2, **MORE).choices[0]
    assert len(found.logprobs.tokens) == 4
    assert all(p <= 0 for p in found.logprobs.token_logprobs)
    assert [len(top) <= 2 for top in found.logprobs.top_logprobs] == [True] * 4
    biased = client.completions.create(model="writer", prompt=PROMPT, max_tokens=3, logit_bias={"7": 100}, **MORE)
    varied = client.completions.create(
        model="writer", prompt=PROMPT, max_tokens=12, presence_penalty=2, frequency_penalty=2, **MORE
    )
    assert biased.choices[0].text != varied.choices[0].text


def test_chats(client: Any, generator: opalite.Generator) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    flat = [messages[0], {"role": "user", "content": "Hi"}]
    wanted = generator.generate(flat, max_tokens=8, ignore_end=True)
    found = client.chat.completions.create(model="writer", messages=messages, max_completion_tokens=8, **MORE)
    assert (found.object, found.choices[0].message.role) == ("chat.completion", "assistant")
    assert found.choices[0].message.content == wanted.text
    events = list(
        client.chat.completions.create(
            model="writer", messages=messages, max_tokens=8, stream=True, logprobs=True, top_logprobs=1, **MORE
        )
    )
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(e.choices[0].delta.content or "" for e in events) == wanted.text
    told = [entry for e in events if e.choices[0].logprobs for entry in e.choices[0].logprobs.content]
    assert [len(entry.top_logprobs) for entry in told] == [1] * len(told)
    assert told
    assert events[-1].choices[0].finish_reason == "length"
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    with_tools = client.chat.completions.create(model="writer", messages=flat, tools=tools, max_tokens=8, **MORE)
    assert with_tools.usage.prompt_tokens > found.usage.prompt_tokens
    without = client.chat.completions.create(
        model="writer", messages=flat, tools=tools, tool_choice="none", max_tokens=8, **MORE
    )
    assert without.usage.prompt_tokens == found.usage.prompt_tokens


def test_messages_of_all_roles(client: Any, generator: opalite.Generator) -> None:
    messages = [{"role": "developer", "content": "Be brief."}, *PAST]
    wanted = generator.generate(
        [
            {"role": "system", "content": "Be brief."},
            *ASKED,
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": {"a": 1}}}]},
            {"role": "tool", "content": "2"},
        ],
        max_tokens=8,
        ignore_end=True,
    )
    found = client.chat.completions.create(model="writer", messages=messages, max_tokens=8, **MORE)
    assert found.choices[0].message.content == wanted.text
    rendered = "<system>Be brief.<user>Hi<assistant>=1<tool>2<assistant>"
    assert found.usage.prompt_tokens == len(rendered)


def test_calls_of_functions(client: Any) -> None:
    def ask(**how: Any) -> Any:
        return client.chat.completions.create(model="caller", messages=ASKED, tools=TOOLS, max_tokens=300, **how)

    (choice,) = ask(tool_choice="auto").choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I add.")
    assert [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls] == [
        ("add", {"a": 1}),
        ("subtract", {"a": 2}),
    ]
    (choice,) = ask(parallel_tool_calls=False).choices
    assert [c.function.name for c in choice.message.tool_calls] == ["add"]
    events = list(ask(stream=True, n=2))
    for number in (0, 1):
        deltas = [e.choices[0].delta for e in events if e.choices[0].index == number]
        assert deltas[0].role == "assistant"
        assert "".join(d.content or "" for d in deltas) == "I add."
        calls = [c for d in deltas for c in d.tool_calls or []]
        assert [(c.index, c.function.name) for c in calls] == [(0, "add"), (1, "subtract")]
    assert [e.choices[0].finish_reason for e in events if e.choices[0].finish_reason] == ["tool_calls"] * 2
    (choice,) = ask(tool_choice="none").choices
    assert choice.message.tool_calls is None


def test_texts_end_at_stop_strings_and_end_tokens(client: Any) -> None:
    def ask(**how: Any) -> Any:
        found = client.chat.completions.create(model="caller", messages=ASKED, tools=TOOLS, **how).choices[0]
        return found.message.content, found.finish_reason

    assert ask(max_tokens=300, stop=". ") == ("I add", "stop")
    assert ask(max_tokens=300, stop=["nothing", "dd"]) == ("I a", "stop")
    assert ask(max_completion_tokens=4) == ("I ad", "length")
    biased = {str(LETTERS.index("!") + 1): 100}
    assert ask(max_tokens=3, logit_bias=biased) == ("!!!", "length")


def test_several_choices_with_log_probabilities(client: Any) -> None:
    found = client.chat.completions.create(
        model="caller", messages=ASKED, tools=TOOLS, n=2, max_tokens=2, logprobs=True, top_logprobs=2, seed=3
    )
    assert [c.message.content for c in found.choices] == ["I ", "I "]
    for choice in found.choices:
        first, second = choice.logprobs.content
        assert (first.token, first.bytes, second.token) == ("I", [73], " ")
        assert first.top_logprobs[0].token == "I"
        assert first.logprob == first.top_logprobs[0].logprob > first.top_logprobs[1].logprob
    assert found.usage.completion_tokens == 4


@pytest.mark.parametrize(
    "options, words",
    [
        ({"extra_body": {"max_token": 3}}, "did you mean 'max_tokens'"),
        ({"temperature": 3}, "'temperature' is from 0 to 2"),
        ({"messages": []}, "'messages' is a list"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "reads texts",
        ),
        ({"top_logprobs": 2}, "needs 'logprobs'"),
        ({"tools": TOOLS, "tool_choice": "required"}, "not constrained"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "add"}}}, "not constrained"),
        ({"tool_choice": "auto"}, "'tool_choice' needs 'tools'"),
        ({"extra_body": {"tools": 5}}, "'tools' is a list"),
        ({"extra_body": {"tools": [{"type": "function"}]}}, "'tools' is a list"),
        ({"stream": True, "stream_options": {"include_usages": True}}, "did you mean 'include_usage'"),
        ({"messages": [{"role": "users", "content": "x"}]}, "'role' is one of system, user, assistant"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "'role' is one of"),
        ({"messages": [{"role": "user", "contents": "x"}]}, "did you mean 'content'"),
        ({"messages": [{"role": "user"}]}, "has no 'content'"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{"}}]}]}, "JSON"),
        ({"messages": [{"role": "assistant", "tool_calls": 3}]}, "'tool_calls' that are no list"),
        ({"response_format": {"type": "json_object"}}, "not constrained"),
        ({"n": 99}, "'n' is from 1 to 16"),
        ({"logit_bias": {"7": 101}}, "from -100 to 100"),
        ({"logit_bias": {"99999999": 1}}, "the vocabulary has"),
        ({"stop": ""}, "'stop' is a text"),
        ({"stream_options": {"include_usage": True}}, "needs 'stream'"),
    ],
)
def test_wrong_requests_are_told_why(client: Any, options: Any, words: str) -> None:
    asked = {"model": "writer", "messages": [{"role": "user", "content": "Hi"}], **options}
    with pytest.raises(openai.BadRequestError, match=words) as e:
        client.chat.completions.create(**asked)
    assert e.value.type == "invalid_request_error"
    fields = {*options, *options.get("extra_body", ())} - {"extra_body"}
    assert e.value.param in fields or "the vocabulary has" in words


def test_errors_have_the_clients_classes(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist") as e:
        client.completions.create(model="reader", prompt="x")
    assert (e.value.param, e.value.code) == ("model", "model_not_found")
    for wrong, words in (
        ({"best_of": 2}, "'best_of' other than 'n'"),
        ({"suffix": "x"}, "'suffix' is not offered"),
        ({"echo": True, "logprobs": 1}, "'logprobs' of prompts"),
        ({"prompt": [1, "x"]}, "'prompt' is a text"),
        ({"max_tokens": 0}, "'max_tokens' is from 1"),
        ({"stop": ["x"] * 17}, "'stop' is a text"),
    ):
        with pytest.raises(openai.BadRequestError, match=words) as bad:
            client.completions.create(**{"model": "writer", "prompt": "x", **wrong})
        assert bad.value.param in wrong
    with pytest.raises(openai.BadRequestError, match="'model' is missing"):
        client.post("/completions", body={"prompt": "x"}, cast_to=object)


def test_the_example_of_the_page(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(from openai .*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(block.replace("http://127.0.0.1:8000/v1", str(client.base_url)))
    assert capsys.readouterr().out


def test_a_client_that_leaves_ends_its_text(client: Any) -> None:
    events = client.completions.create(model="writer", prompt=PROMPT, max_tokens=100_000, stream=True, **MORE)
    next(iter(events))
    events.close()
    assert client.completions.create(model="writer", prompt=PROMPT, max_tokens=2, **MORE).choices[0].text


@pytest.mark.parametrize(
    "call, body",
    [
        ("completions", b'"model": "writer", "prompt": ["x", "\\ud800"]'),
        ("chat/completions", b'"model": "writer", "messages": [{"role": "user", "content": "\\ud800"}]'),
        ("completions", b'"model": "writer", "prompt": "x", "stop": "\\ud800", "max_tokens": 2'),
    ],
)
def test_half_a_surrogate_pair_is_no_text(client: Any, call: str, body: bytes) -> None:
    answer = client._client.post(f"{client.base_url}{call}", content=b"{%s}" % body)
    assert answer.status_code == (200 if b"stop" in body else 400), answer.text


def test_events_end_with_done(client: Any) -> None:
    body = {"model": "writer", "prompt": PROMPT, "max_tokens": 2, "stream": True, "ignore_eos": True}
    with client._client.stream("POST", f"{client.base_url}completions", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(json.loads(line[6:])["object"] == "text_completion" for line in lines[:-1])
