"""Embeddings by OpenAI's API, asked by its own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
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

from ....helpers.embedders import make_embedder  # noqa: E402
from ....helpers.scripted_decoder import scripted  # noqa: E402
from ....helpers.words import END, make_folder  # noqa: E402


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_embedder(tmp_path_factory.mktemp("embedder"))


@pytest.fixture(scope="module")
def client(rt: Runtime, embedder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    files = {"model.onnx": scripted("x", 1)}
    writer = make_folder(tmp_path_factory.mktemp("writer"), files, config={"eos_token_id": END})
    settings = ServerSettings(models={"embedder": embedder, "writer": writer}, devices=(rt.info.id,))
    with (
        serving(lambda: Server(settings), [HttpFront(HttpSettings(port=0))], 20) as (address,),
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120) as made,
    ):
        yield made


def test_embeddings(client: Any, rt: Runtime, embedder: Path) -> None:
    texts = ["Once upon a time", "x", "Once upon"]
    with opalite.Embedder(embedder, device=rt.info.id) as own:
        wanted, tokens = own.embed(texts), [own.tokenizer.encode(t) for t in texts]

    def ask(given: Any, **how: Any) -> Any:
        found = client.embeddings.create(model="embedder", input=given, **how)
        assert (found.object, found.model, [d.index for d in found.data]) == (
            "list",
            "embedder",
            [*range(len(found.data))],
        )
        return np.array([d.embedding for d in found.data]), found.usage

    vectors, usage = ask(texts)  # the client asks for base64
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    assert usage.prompt_tokens == usage.total_tokens == sum(map(len, tokens))
    np.testing.assert_allclose(ask(texts, encoding_format="float")[0], wanted, atol=1e-5)
    np.testing.assert_allclose(ask(texts[0])[0], wanted[:1], atol=1e-5)
    np.testing.assert_allclose(ask(tokens)[0], wanted, atol=1e-5)
    np.testing.assert_allclose(ask(tokens[1])[0], wanted[1:2], atol=1e-5)
    short = wanted[:, :8] / np.linalg.norm(wanted[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(ask(texts, dimensions=8)[0], short, atol=1e-5)
    body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [3], "data": texts}]}
    url = str(client.base_url).replace("/v1/", "/v2/models/embedder/infer")
    vectors, counts = (o["data"] for o in client._client.post(url, json=body).json()["outputs"])
    np.testing.assert_allclose(np.reshape(vectors, wanted.shape), wanted, atol=1e-5)
    assert counts == [*map(len, tokens)]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"input": ""}, "'input' is empty"),
        ({"input": ["x", ""]}, "'input' is empty at 1"),
        ({"input": []}, "none of them empty"),
        ({"input": [[5], []]}, "none of them empty"),
        ({"input": ["x", 5]}, "'input' is a text"),
        ({"input": ["x"] * 2049}, "2048 are allowed"),
        ({"input": "x" * 25}, "has 25 tokens, and the model reads 24"),
        ({"input": [5, 97]}, "the vocabulary has 97"),
        ({"dimensions": 65}, "dimensions is from 1 to 64"),
        ({"dimensions": 0}, "'dimensions' is from 1"),
        ({"encoding_format": "hex"}, "float or base64"),
        ({"extra_body": {"dimension": 8}}, "did you mean 'dimensions'"),
        ({"model": "writer"}, "does not embed texts"),
    ],
)
def test_what_is_not_embedded_is_told_why(client: Any, options: Any, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as e:
        client.embeddings.create(**{"model": "embedder", "input": "x", **options})
    assert e.value.param in (*options, *options.get("extra_body", ())) or "tokens" in words or "vocabulary" in words


def test_models_are_of_one_kind(client: Any) -> None:
    assert sorted(m.id for m in client.models.list()) == ["embedder", "writer"]
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.embeddings.create(model="reader", input="x")
    with pytest.raises(openai.BadRequestError, match="'embedder' does not generate text"):
        client.completions.create(model="embedder", prompt="x")
    body = b'{"model": "embedder", "input": "\\ud800"}'
    answer = client._client.post(f"{client.base_url}embeddings", content=body)
    assert (answer.status_code, "no Unicode" in answer.text) == (400, True)
