"""Texts over HTTP to models on a device: elements of BYTES tensors, and a language model's, whole and by events."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.http as triton

import onnx
import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime
from opalite.serve.engine.inference_server import Server
from opalite.serve.engine.model_config import ServerSettings
from opalite.serve.http.http_server import HttpFront, HttpSettings
from opalite.serve.run_servers import serving

from ....helpers.decoders import KINDS
from ....helpers.small_models import make_model, port
from ....helpers.words import make_folder

PROMPT = "Once (5)"
OPTIONS: dict[str, Any] = {"max_tokens": 12, "ignore_end": True}


class Served(NamedTuple):
    place: str
    text: str
    """What the language model writes after PROMPT."""


@pytest.fixture(scope="module")
def served(rt: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
    pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
    writer = make_folder(tmp_path_factory.mktemp("writer"), {"model.onnx": KINDS[next(iter(KINDS))]()})
    echo = tmp_path_factory.mktemp("echo") / "echo.onnx"
    ends = [port(name, ["rows", 2], TensorProto.STRING) for name in ("given", "same")]
    onnx.save(make_model([helper.make_node("Identity", ["given"], ["same"])], ends[:1], ends[1:]), echo)
    with opalite.Generator(writer, device=rt.info.id) as generator:
        text = generator.generate(PROMPT, **OPTIONS).text
    settings = ServerSettings(models={"writer": writer, "echo": Path(echo)}, devices=(rt.info.id,))
    with serving(lambda: Server(settings), [HttpFront(HttpSettings(port=0))], 20) as (address,):
        yield Served(address.removeprefix("http://"), text)


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the received data in pieces."""
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def ask(served: Served, call: str, body: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(served.place, timeout=60)
    connection.request("POST", f"/v2/models/writer/{call}", json.dumps(body))
    return connection, connection.getresponse()


@pytest.mark.parametrize("binary", [True, False])
def test_texts_come_back(served: Served, binary: bool) -> None:
    texts = np.array([["", "ä ö"], ['a\n"b"\\', "日本"], ["x" * 70_000, "\x00"]], object)
    with triton.InferenceServerClient(served.place) as client:
        given = triton.InferInput("given", list(texts.shape), "BYTES").set_data_from_numpy(texts, binary_data=binary)
        asked = [triton.InferRequestedOutput("same", binary_data=binary)]
        found = client.infer("echo", [given], outputs=asked).as_numpy("same")
    assert [[t.decode() if isinstance(t, bytes) else t for t in row] for row in found] == texts.tolist()


def test_a_text_as_a_tensor(served: Served) -> None:
    with triton.InferenceServerClient(served.place) as client:
        prompt = np.array([PROMPT.encode()], object)
        given = triton.InferInput("text_input", [1], "BYTES").set_data_from_numpy(prompt)
        found = client.infer("writer", [given], parameters=OPTIONS)
        assert found.as_numpy("text_output").tolist() == [served.text.encode()]
        assert found.get_response()["parameters"] == {"reason": "length", "tokens": 12, "prompt_tokens": 8}


def test_a_text_in_one_answer_and_by_events(served: Served) -> None:
    _, answer = ask(served, "generate", {"text_input": PROMPT, **OPTIONS})
    whole = json.loads(answer.read())
    assert (answer.status, whole["text_output"], whole["reason"]) == (200, served.text, "length")
    _, answer = ask(served, "generate_stream", {"text_input": PROMPT, "id": "7", "parameters": OPTIONS})
    assert (answer.status, answer.headers.get_content_type()) == (200, "text/event-stream")
    pieces = list(events(answer))
    assert len(pieces) > 2
    assert "".join(p["text_output"] for p in pieces) == served.text
    assert {(p["model_name"], p["id"]) for p in pieces} == {("writer", "7")}
    assert (pieces[-1]["triton_final_response"], pieces[-1]["tokens"]) == (True, 12)


@pytest.mark.parametrize(
    "body,words",
    [
        ({"text_input": "a", "max_tokens": "many"}, "'max_tokens' is int, got 'many'"),
        ({"text_input": ["a", "b"]}, "text_input"),
        ({"max_tokens": 3}, "input 'text_input' of model 'writer' is missing"),
    ],
)
@pytest.mark.parametrize("call", ["generate", "generate_stream"])
def test_what_does_not_fit_is_told(served: Served, call: str, body: dict[str, Any], words: str) -> None:
    _, answer = ask(served, call, body)
    assert answer.status == 400
    assert words in json.loads(answer.read())["error"]


def test_a_client_that_leaves_ends_its_text(served: Served) -> None:
    connection, answer = ask(
        served, "generate_stream", {"text_input": "On and on", "max_tokens": 500, "ignore_end": True}
    )
    next(events(answer))
    answer.close()
    connection.close()
    _, answer = ask(served, "generate", {"text_input": PROMPT, **OPTIONS})
    assert json.loads(answer.read())["text_output"] == served.text
    with triton.InferenceServerClient(served.place) as client:
        (stats,) = client.get_inference_statistics("writer")["model_stats"]
        assert stats["inference_stats"]["cancel"]["count"] == 1
