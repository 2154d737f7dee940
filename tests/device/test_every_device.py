"""Device tests run on every device found: PoCL shows two here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opalite.cl.runtime import Runtime

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.device.conftest import *
from tests.device.conftest import _sessions_take_the_same_device
"""
DEFAULT = """
from opalite.cl.runtime import find_runtime

def test_the_default_is_the_runtime(rt):
    print("on", rt.info.id)
    assert find_runtime().info.id == rt.info.id
"""


def test_each_is_the_default_of_its_tests(rt: Runtime, tmp_path: Path) -> None:
    if rt.info.platform != "Portable Computing Language":
        pytest.skip("only PoCL shows as many devices as it is asked for")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_default.py").write_text(DEFAULT)
    environment = {k: v for k, v in os.environ.items() if k != "OPALITE_DEVICE"} | {"POCL_DEVICES": "pthread basic"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT), *filter(None, sys.path)))
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"pocl:cpu:0", "pocl:cpu:1"} <= set(re.findall(r"on (\w+:cpu:\d)", done.stdout)), "beside other devices"
