"""Processes that share one cache folder and are killed at random moments leave a cache that serves.

Programs, plans, tuning and PoCL's files are written all the while. OPALITE_TEST_KILLS sets the number of rounds; in
each, two processes are killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from onnx import helper

from ...helpers.small_models import make_model, port

KILLS = int(os.environ.get("OPALITE_TEST_KILLS", "3"))
MODELS = 6
COUNT = 64

# A process that runs models over and over with an empty memory: programs, plans and tuning come and go on disk.
WORKER = """
import logging, sys, time
import numpy as np
import opalite
import opalite.run.api.session.inference_session
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.runtime import Runtime
from opalite.tune.tuning_database import Verdict, open_database
from opalite.cache.hit_counters import process_counts
from opalite.tune.tuning_levels import Level
logging.basicConfig(stream=sys.stdout, format="log: %(message)s")
folder, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
built = 0
for i in range(rounds):
    rt = Runtime(find_device())
    opalite.run.api.session.session_core.find_runtime = lambda *_: rt
    number = (seed + i) % %MODELS%
    session = opalite.InferenceSession(f"{folder}/{number}.onnx")
    got = session.run(None, {"x": np.arange(%COUNT%, dtype=np.float32)})[0]
    want = np.sqrt(np.arange(%COUNT%, dtype=np.float32)) + number
    assert np.allclose(got, want, rtol=1e-6, atol=0), (number, got)
    built += rt.counters.programs_built
    if rounds > 100:
        open_database().put_verdict("device", str(seed + i), Verdict(True, 1.0, 0.5, Level.FAST))
        if i % 7 == 6:
            from opalite.cache.cache_folder import cache_folder, trim
            trim(cache_folder(), 30_000)
print("hits", process_counts()["plans"].hits, "built", built, flush=True)
""".replace("%MODELS%", str(MODELS)).replace("%COUNT%", str(COUNT))


def start(cache: Path, folder: Path, rounds: int, seed: int) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("POCL_")}
    environment |= {"OPALITE_CACHE_DIR": str(cache), "OPALITE_PLAN_CACHE": "1", "OPALITE_BUILD_THREADS": "1"}
    environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", WORKER, str(folder), str(rounds), str(seed)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def make_models(folder: Path) -> None:
    folder.mkdir()
    for number in range(MODELS):
        nodes = [helper.make_node("Sqrt", ["x"], ["r"]), helper.make_node("Add", ["r", "k"], ["y"])]
        k = np.full(COUNT, number, np.float32)
        model = make_model(nodes, [port("x", [COUNT])], [port("y", [COUNT])], {"k": k})
        (folder / f"{number}.onnx").write_bytes(model.SerializeToString())


def test_killed_processes_leave_a_cache_that_serves(tmp_path: Path) -> None:
    cache, folder = tmp_path / "cache", tmp_path / "models"
    make_models(folder)
    rng = random.Random(os.getpid())
    for done in range(KILLS):
        pair = [start(cache, folder, 1_000_000, rng.randrange(1000)) for _ in range(2)]
        for worker in pair:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in pair:
            time.sleep(rng.uniform(0, 0.5))
            assert worker.poll() is None, worker.communicate()[0]
            worker.kill()
        for worker in pair:
            said, _ = worker.communicate()
            assert "Traceback" not in said
            assert "removed" not in said, f"after {done} rounds something damaged was found:\n{said}"
            assert "replaced" not in said
    for want in (None, f"hits {MODELS} built 0"):
        last = start(cache, folder, MODELS, 0)
        said, _ = last.communicate(timeout=120)
        assert last.returncode == 0, said
        assert "log:" not in said, said
        assert want is None or want in said, said
    # Whoever started after a process that was killed has taken over its folder.
    folders = {p.name for p in (cache / "pocl").glob("*/")}
    assert folders <= {"0", "1"}, folders
