"""Whatever happens to files of the cache, the processes after it give right answers, and none dies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from opalite.cl.runtime import Runtime

from ...helpers.small_models import classifier

# A process that runs a model with kernels of several kinds, and says what it gave.
WORKER = """
import logging, sys
import numpy as np
import opalite
logging.basicConfig(stream=sys.stdout, format="log: %(message)s")
session = opalite.InferenceSession(sys.argv[1], precision="fp32")
got = session.run(None, {"x": np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)})[0]
print("gave", got.tobytes().hex())
print("built", session.runtime.counters.programs_built)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "classifier.onnx"
    path.write_bytes(classifier().SerializeToString())
    return path


def run(model: Path, cache: Path) -> tuple[str, int]:
    """(what a process with this cache gave, how many programs it built)."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("POCL_")}
    environment |= {"OPALITE_CACHE_DIR": str(cache), "OPALITE_PLAN_CACHE": "1", "OPALITE_BUILD_THREADS": "2"}
    environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", WORKER, str(model)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    return said["gave"], int(said["built"])


def damage(path: Path, rng: random.Random) -> None:
    raw = path.read_bytes()
    match rng.randrange(5):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(raw[: rng.randrange(len(raw) + 1)])
        case 2:
            path.write_bytes(b"")
        case 3:
            at = rng.randrange(len(raw) or 1)
            path.write_bytes(raw[:at] + bytes(len(raw[at : at + 500])) + raw[at + 500 :])
        case 4:
            changed = bytearray(raw or b"\0")
            for _ in range(rng.randrange(1, 20)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)


def test_files_that_pocl_maps_as_code_are_made_whole(rt: Runtime, model: Path, tmp_path: Path) -> None:
    """Each one that was cut or changed ended every later process before."""
    if rt.info.family != "pocl":
        pytest.skip("no files of PoCL's")
    cache = tmp_path / "cache"
    want, built = run(model, cache)
    assert built > 0
    libraries = sorted((cache / "pocl").rglob("*.so"))
    assert len(libraries) >= 3
    for i in range(3):
        for n, library in enumerate(libraries):
            raw = library.read_bytes()
            if (i + n) % 3 == 0:
                library.unlink()
            else:
                library.write_bytes(raw[: len(raw) // 2] if (i + n) % 3 == 1 else raw[:2000] + bytes(len(raw) - 2000))
        assert run(model, cache) == (want, 0)


def test_any_damage_to_the_cache_is_survived(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    want, _ = run(model, cache)
    rng = random.Random(3)
    for _ in range(5):
        files = sorted(p for p in cache.rglob("*") if p.is_file())
        for path in rng.sample(files, min(len(files), rng.choice((1, 3, len(files))))):
            damage(path, rng)
        assert run(model, cache)[0] == want
    assert run(model, cache) == (want, 0)
