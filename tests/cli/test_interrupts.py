"""Ctrl-C in every phase of a command: status 130 and one line, never a traceback. A closed pipe ends it quietly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..helpers.small_models import classifier, save

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")


def started(*command: str) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(ROOT / "src"), *filter(None, sys.path)))
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


def interrupted(process: subprocess.Popen[str], sign: str) -> str:
    """Standard error after SIGINT, which the whole group gets once a line begins with `sign`."""
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith(sign):
        assert line, "ended before"
    os.killpg(process.pid, signal.SIGINT)
    said = process.stderr.read()
    assert process.wait(timeout=120) == 130, said
    assert "Traceback" not in said
    return said


ENDLESS = """
import importlib, sys
from opalite.__main__ import main
from opalite.interrupts import watch
watch()
module, _, path = sys.argv.pop(1).partition(":")
*owners, name = path.split(".")
owner = importlib.import_module(module)
for part in owners:
    owner = getattr(owner, part)
real = getattr(owner, name)
def endless(*args, **settings):
    print("at work", file=sys.stderr, flush=True)
    while True:
        real(*args, **settings)
setattr(owner, name, endless)
main()
"""
"""Runs the command line with one function that never returns, and says when it begins."""


@pytest.mark.parametrize(
    "name, work",
    [
        ("run", "opalite.run.api.session.inference_session:InferenceSession.run"),
        ("tune", "opalite.run.api.session.inference_session:InferenceSession.tune"),
        ("bench", "opalite.cli.bench:compare"),
    ],
)
def test_a_command_at_work(name: str, work: str, tmp_path: Path) -> None:
    model = save(classifier(), tmp_path / "net.onnx")
    process = started("-c", ENDLESS, work, name, model, "--shape", "x:1x3x16x16")
    assert interrupted(process, "at work").startswith(("opalite: interrupted", "stopped;"))


WRAPPED = """
import opalite.cli.devices
from opalite.__main__ import main
def interrupted(*_, **__):
    class Wraps:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt
    class Owner:
        wraps = Wraps()
opalite.cli.devices.list_all = interrupted
main()
"""


def test_an_interrupt_that_python_wraps() -> None:
    """Python 3.11 makes a RuntimeError of it."""
    process = started("-c", WRAPPED, "devices")
    assert process.communicate(timeout=120)[1] == "opalite: interrupted\n"
    assert process.returncode == 130


def test_a_command_that_imports() -> None:
    interrupted(started("-v", "-m", "opalite", "run", "net.onnx"), "import 'click")


STUBBORN = """
import hashlib, sys
from opalite.interrupts import watch
watch()
while True:
    try:
        print("now", file=sys.stderr, flush=True)
        hashlib.pbkdf2_hmac("sha512", b"", b"", 2**31 - 1)
    except KeyboardInterrupt:
        pass
"""


def test_code_that_python_cannot_interrupt() -> None:
    """A call that lets other threads run, but returns to Python in hours only."""
    assert interrupted(started("-c", STUBBORN), "now").endswith("opalite: interrupted\n")


BUSY = """
import atexit, sys, threading
import opalite.cli
from opalite.__main__ import main
def interrupted(**_):
    threading.Thread(target=threading.Event().wait).start()
    atexit.register(print, "tidied", file=sys.stderr, flush=True)
    raise KeyboardInterrupt
opalite.cli.main = interrupted
main()
"""


def test_threads_at_work_are_not_waited_for() -> None:
    process = started("-c", BUSY)
    assert process.communicate(timeout=120)[1] == "opalite: interrupted\ntidied\n"
    assert process.returncode == 130


def test_a_closed_pipe() -> None:
    process = started("-m", "opalite", "knobs")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=120) == 1
