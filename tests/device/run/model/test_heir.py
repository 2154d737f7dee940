"""A process that ends with its first result leaves the general programs to one that builds them and ends, too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opalite.cl.heir import LASTS_S
from opalite.cl.runtime import Runtime
from opalite.plan.general_programs import general_programs
from opalite.pocl.linker import is_needed

from .test_behind import _processes_with, classifier

_ONE_RUN = """
import sys
import numpy as np
import opalite
session = opalite.InferenceSession(sys.argv[1], device=sys.argv[2])
session.run(None, {"x": np.zeros((1, 3, 16, 16), np.float32)})
print(session.last_timing.tier, flush=True)
"""


def run_once(rt: Runtime, folder: Path, **settings: str) -> None:
    model = folder / "m.onnx"
    model.write_bytes(classifier(channels=24).SerializeToString())
    environment = {**os.environ, "OPALITE_TIERS": "1", "OPALITE_CACHE_DIR": str(folder / "cache"), **settings}
    command = [sys.executable, "-c", _ONE_RUN, str(model), rt.info.id]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0
    if done.stdout.strip() != "general":
        pytest.skip("nothing is built behind here")


def wait_for_the_end(folder: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while _processes_with(str(folder)) and time.monotonic() < end:
        time.sleep(0.02)
    assert _processes_with(str(folder)) == []


def stored(folder: Path) -> int:
    return len(list((folder / "cache" / "programs").glob("*/*.bin")))


@pytest.mark.parametrize("linker", ["auto", "own"])
def test_general_programs_are_built_once_the_process_has_ended(rt: Runtime, tmp_path: Path, linker: str) -> None:
    if rt.programs._behind_pool is None or (linker == "own" and not is_needed()):
        pytest.skip("no process compiles here, or needs a linker")
    run_once(rt, tmp_path, OPALITE_LINKER=linker)
    wait_for_the_end(tmp_path, LASTS_S + 5)
    if list((tmp_path / "cache").rglob("*.heir")):
        pytest.skip("the machine is too busy for it to come to its end")
    left = [path.name for path in (tmp_path / "cache" / "pocl").glob("*/build-*")]
    assert left == []
    assert stored(tmp_path) >= len(general_programs(rt.info))


def test_without_it_every_process_ends(rt: Runtime, tmp_path: Path) -> None:
    if rt.programs._behind_pool is None:
        pytest.skip("no process compiles here")
    run_once(rt, tmp_path, OPALITE_HEIR="0")
    assert list((tmp_path / "cache").rglob("*.heir")) == []
    wait_for_the_end(tmp_path, 2)
