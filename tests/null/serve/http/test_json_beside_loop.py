"""Large JSON gives the answers of small JSON, and its errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from opalite.serve.http.asgi_app import App
from opalite.serve.wire.client_limits import HttpLimits

from ....helpers.asgi import Reply, ask, binary, tensor
from ....helpers.serving import Double

MANY = 40_000


@pytest.fixture(scope="module")
def said() -> dict[str, Reply]:
    """The answers to all requests of this file, of one server."""
    import asyncio

    numbers = list(range(MANY))
    texts = [["ä" * (n % 9) for n in range(MANY // 2)]]
    cases: dict[str, tuple[str, Any]] = {
        "counts": (
            "counts",
            {"inputs": [tensor("x", "INT64", [MANY], numbers)], "id": '"}],', "parameters": {"own": 1}},
        ),
        "nested": ("sums", {"inputs": [_rows("a"), _rows("b")], "outputs": [{"name": "difference"}, {"name": "sum"}]}),
        "texts": ("shout", {"inputs": [tensor("text", "BYTES", [1, MANY // 2], texts)]}),
        "kind": ("counts", {"inputs": [tensor("x", "INT64", [MANY], [0.5] * MANY)]}),
        "shape": ("counts", {"inputs": [tensor("x", "INT64", [3], numbers)]}),
        "beside": ("counts", {"inputs": [tensor("x", "INT64", [MANY], numbers)], "more": "x" * 2_000_000}),
    }
    written = np.zeros(1_600_000, np.int64)
    head = {"inputs": [tensor("x", "INT64", [len(written)], binary_data_size=written.nbytes)]}
    double = Double()
    app = App(double, HttpLimits(json_bytes=3_000_000))

    async def run() -> dict[str, Reply]:
        found = {}
        for name, (model, body) in cases.items():
            found[name] = await ask(app, "POST", f"/v2/models/{model}/infer", json.dumps(body).encode())
        body, headers = binary(head, written)
        found["written"] = await ask(app, "POST", "/v2/models/counts/infer", body, headers)
        double.helper.close()
        assert double.memory.held == 0
        return found

    return asyncio.run(run())


def _rows(name: str) -> dict[str, Any]:
    rows = [[float(n), 1.5, -2.0, 1e-3] for n in range(MANY // 8)]
    return tensor(name, "FP32", [len(rows), 4], rows)


def test_large_tensors_are_read_and_written(said: dict[str, Reply]) -> None:
    answer = said["counts"].object
    assert answer["outputs"] == [tensor("y", "INT64", [MANY], list(range(1, MANY + 1)))]
    assert answer["id"] == '"}],'
    difference, total = said["nested"].object["outputs"]
    assert (difference["name"], set(difference["data"])) == ("difference", {0.0})
    assert (total["shape"], total["data"][4:7]) == ([MANY // 8, 4], [2.0, 3.0, -4.0])
    assert said["texts"].object["outputs"][0]["data"][8].startswith("ä")


@pytest.mark.parametrize(
    "case,status,part",
    [
        ("kind", 400, "'data' has numbers with a fraction, and INT64 has whole numbers"),
        ("shape", 400, f"'data' has {MANY} elements, and shape [3] has 3"),
        ("beside", 413, "besides the elements of inputs"),
        ("written", 413, "ask for binary data (binary_data)"),
    ],
)
def test_errors_are_those_of_small_requests(said: dict[str, Reply], case: str, status: int, part: str) -> None:
    assert said[case].status == status
    assert part in said[case].error
