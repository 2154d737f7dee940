"""docs/serving.md, followed: its first server is started, and its calls are made."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ....docs.commands import ROOT
from ....docs.scene import classifier

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
CALLS = [line for line in PAGE.splitlines() if line.startswith("curl ")]
(CLIENT, SHARED, _, NOTEBOOK) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "model.onnx").write_bytes(classifier().SerializeToString())
    first = next(line.split() for line in PAGE.splitlines() if line.startswith("    opalite serve "))
    command = [sys.executable, "-m", *first, "--port", "0", "--device", os.environ.get("OPALITE_DEVICE", "cpu")]
    served = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        line = served.stdout.readline()
        assert line.startswith("ready: model (1) "), line
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found is not None
        yield found[1]
        served.send_signal(signal.SIGTERM)
        assert served.wait(30) == 0
    finally:
        served.kill()
        served.wait()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page calls by curl")
@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_a_call_of_the_page(port: str, call: str) -> None:
    words = shlex.split(call.replace(":8000", f":{port}"))
    done = subprocess.run([*words, "--fail-with-body", "-sS"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if "/infer" in call:
        (y,) = json.loads(done.stdout)["outputs"]
        assert (y["name"], y["shape"]) == ("y", [1, 10])
        assert sum(y["data"]) == pytest.approx(1)


def test_the_client_of_the_page(port: str) -> None:
    said = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(said):
        exec(CLIENT.replace(":8000", f":{port}"), names)
        exec(SHARED, names)
    found, shared = said.getvalue().split("]]", 1)
    assert found.startswith("[[0.")
    assert shared.strip("\n]") == found


def test_the_notebook_of_the_page(port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(classifier().SerializeToString())
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(NOTEBOOK, {})
    assert said.getvalue().startswith("http://127.0.0.1:")
