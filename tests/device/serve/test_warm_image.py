"""What the image of deploy/docker does, by hand: warmed once, it serves from a cache that nobody can write."""

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


@pytest.mark.skipif(sys.platform != "linux", reason="the image is Linux's")
def test_a_warmed_cache_that_is_read_only_serves_without_compiling(tmp_path: Path, rt: Runtime) -> None:
    """As a user without rights, where the test may become one."""
    if rt.info.id != "pocl:cpu:0":
        pytest.skip("the image has PoCL alone")
    models, cache, programs = tmp_path / "models", tmp_path / "cache", tmp_path / "bin"
    (models / "net" / "1").mkdir(parents=True)
    onnx.save(classifier((1, 3, 13, 11)), models / "net/1/model.onnx")
    programs.mkdir()
    for name, words in {"opalite": f"{sys.executable} -P -m opalite", "python": f"{sys.executable} -P"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("OPALITE_")},
        "OPALITE_CACHE_DIR": str(cache),
        "OPALITE_DEVICE": rt.info.id,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "scratch"),
    }
    Path(environment["TMPDIR"]).mkdir()
    port = free_port()
    warmed = subprocess.run(
        ["sh", RECIPE / "warm.sh", models, str(port)], env=environment, capture_output=True, text=True, timeout=240
    )
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
    origins = dict(re.findall(r'^opalite_programs_total\{.*origin="(\w+)".*\} ([\d.]+)$', text, re.MULTILINE))
    assert set(origins) == {"loaded"}, origins
    assert sorted(str(p) for p in cache.rglob("*")) == before


def without_rights() -> list[str]:
    """What begins a command of a user who may change nothing: a stranger, else root without capabilities."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    stranger = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import opalite, click"
    reads = subprocess.run([*stranger, "sh", "-c", f'exec {sys.executable} -P -c "{code}"'], capture_output=True)
    return stranger if reads.returncode == 0 else ["setpriv", "--bounding-set=-all", "--no-new-privs"]
