"""The parts of docs/scaling.md on Ray and Spark run as they stand."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite

from ...docs.scene import classifier

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"
DATA, SERVE, SPARK = [
    b for b in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL) if "opalite.ray" in b
]


@pytest.fixture(autouse=True)
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(classifier().SerializeToString())
    monkeypatch.chdir(tmp_path)


def test_ray_data(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(DATA, str(PAGE), "exec"), {})
    rows = re.findall(r"^\((\d+), 10\)$", capsys.readouterr().out, re.MULTILINE)
    assert sum(map(int, rows)) == 1000


def test_ray_serve(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'opalite-cl[test-ray]'")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        exec(compile(SERVE, str(PAGE), "exec"), {})
        assert "(10,)" in capsys.readouterr().out
    finally:
        serve.shutdown()


PICTURES = np.random.default_rng(0).standard_normal((6, 3072)).astype(np.float32)


def check_scores(found: Any) -> None:
    found = found.sort_values("id")
    assert found["id"].tolist() == list(range(6))
    (expected,) = opalite.InferenceSession("model.onnx").run(None, {"input": PICTURES.reshape(-1, 3, 32, 32)})
    np.testing.assert_allclose(np.stack(found["scores"]), expected, rtol=1e-5)


def test_the_function_for_spark() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install 'opalite-cl[test-ray]'")
    names: dict[str, Any] = {}
    exec(compile(SPARK, str(PAGE), "exec"), names)
    frames = [pandas.DataFrame({"id": range(i, i + 3), "picture": list(PICTURES[i : i + 3])}) for i in (0, 3)]
    check_scores(pandas.concat(names["score"](iter(frames))))


def test_the_function_in_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed: pip install pyspark")
    pandas = pytest.importorskip("pandas")
    names: dict[str, Any] = {"__name__": "__main__"}  # as in a script, whose functions are sent by value
    exec(compile(SPARK.replace("model.onnx", str(Path("model.onnx").resolve())), str(PAGE), "exec"), names)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    settings = {"spark.ui.enabled": "false", "spark.executorEnv.POCL_MAX_PTHREAD_COUNT": "1"}
    spark = sql.SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    try:
        frame = pandas.DataFrame({"id": range(6), "picture": PICTURES.tolist()})
        table = spark.createDataFrame(frame, "id long, picture array<float>").repartition(2)
        check_scores(table.mapInPandas(names["score"], "id long, scores array<float>").toPandas())
    finally:
        spark.stop()
