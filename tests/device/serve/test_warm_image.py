"""The steps of the image of deploy/docker: a warmed cache serves read-only."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import onnx
from opalite.cl.runtime import Runtime

from ...helpers.small_models import classifier

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "deploy" / "docker"
NOBODY = "65534"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def make_environment(folder: Path, rt: Runtime) -> dict[str, str]:
    """Of commands as the image has them, with what they write below `folder`."""
    programs = folder / "bin"
    programs.mkdir()
    for name, words in {"opalite": f"{sys.executable} -P -m opalite", "python": f"{sys.executable} -P"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("OPALITE_")},
        "OPALITE_CACHE_DIR": str(folder / "cache"),
        "OPALITE_DEVICE": rt.info.id,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TMPDIR": str(folder / "scratch"),
    }
    Path(environment["TMPDIR"]).mkdir()
    return environment


@pytest.mark.skipif(sys.platform != "linux", reason="the image is Linux's")
def test_a_warmed_cache_that_is_read_only_serves_without_compiling(tmp_path: Path, rt: Runtime) -> None:
    """As a user without rights, where the test may become one."""
    if rt.info.id != "pocl:cpu:0":
        pytest.skip("the image has PoCL alone")
    models, cache = tmp_path / "models", tmp_path / "cache"
    (models / "net" / "1").mkdir(parents=True)
    onnx.save(classifier(("N", 3, 13, 11)), models / "net/1/model.onnx")
    environment = make_environment(tmp_path, rt)
    port = free_port()
    warmed = warm(models, environment, port)
    assert warmed.returncode == 0, warmed.stdout + warmed.stderr
    assert any((cache / "programs").iterdir())

    before = sorted(str(p) for p in cache.rglob("*"))
    for path in (*cache.rglob("*"), cache):
        path.chmod(0o555 if path.is_dir() else 0o444)
    Path(environment["TMPDIR"]).chmod(0o777)
    for path in (*tmp_path.parents[:2], tmp_path):
        path.chmod(path.stat().st_mode | 0o111)
    command = [*without_rights(), "opalite", "serve", "--repository", models, "--port", str(port), "--grpc-port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            end = time.monotonic() + 120
            ready = ["python", RECIPE / "ready.py", str(port)]
            while subprocess.run(ready, env=environment, check=False).returncode:
                assert server.poll() is None, server.communicate()
                assert time.monotonic() < end
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        finally:
            server.terminate()
        assert server.wait(30) == 0
    for what, wanted in (("programs", {"loaded", "shared"}), ("plans", {"loaded"})):
        origins = re.findall(rf'^opalite_{what}_total\{{.*origin="(\w+)".*\}} [\d.]+$', text, re.MULTILINE)
        assert {"loaded"} <= set(origins) <= wanted, what
    assert sorted(str(p) for p in cache.rglob("*")) == before


def warm(models: Path, environment: dict[str, str], port: int) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(RECIPE / "warm.sh"), str(models), str(port)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.skipif(sys.platform != "linux", reason="the image is Linux's")
@pytest.mark.parametrize(
    "what, told",
    [
        ("a model that is none", "model 'bad' cannot be served"),
        ("no models", "there are no models"),
        ("no folder", "the server has ended"),
        ("a port that is taken", "the server has ended"),
    ],
)
def test_warming_ends_where_waiting_longer_would_change_nothing(
    tmp_path: Path, rt: Runtime, what: str, told: str
) -> None:
    """The step itself waits for 900 s."""
    if rt.info.id != "pocl:cpu:0":
        pytest.skip("the image has PoCL alone")
    environment = make_environment(tmp_path, rt)
    models = tmp_path / "models"
    if what != "no folder":
        models.mkdir()
    if what == "a model that is none":
        for name in ("bad", "net"):
            (models / name / "1").mkdir(parents=True)
        onnx.save(classifier((1, 3, 13, 11)), models / "net/1/model.onnx")
        (models / "bad/1/model.onnx").write_bytes(b"no model at all")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] if what == "a port that is taken" else free_port()
        warmed = warm(models, environment, port)
    assert warmed.returncode == 1, warmed.stdout + warmed.stderr
    assert told in warmed.stderr, warmed.stderr
    assert "do not get ready" in warmed.stderr


def without_rights() -> list[str]:
    """The command prefix of a user without write access: another user, else root without capabilities."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    stranger = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import opalite, click"
    reads = subprocess.run([*stranger, "sh", "-c", f'exec {sys.executable} -P -c "{code}"'], capture_output=True)
    return stranger if reads.returncode == 0 else ["setpriv", "--bounding-set=-all", "--no-new-privs"]
