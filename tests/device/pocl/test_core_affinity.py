"""Processes that may use some of the machine's cores: as many threads, each on one of them, and short runs as fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opalite.cl.runtime import Runtime

from ...helpers.small_models import dense

_ONE_CORE = """
import json, os, sys, time
before = set(os.listdir("/proc/self/task"))
os.sched_setaffinity(0, {int(sys.argv[1])})
import numpy as np, opalite
session = opalite.InferenceSession(sys.argv[2], device=sys.argv[3])
feeds = {"x": np.ones((1, 16, 12, 12), np.float32)}
first = session.run(None, feeds)
for _ in range(30):
    session.run(None, feeds)
session.settle()
last = session.run(None, feeds)
(executable,) = session._dispatcher.run_record.executables
cores = [sorted(os.sched_getaffinity(int(t))) for t in set(os.listdir("/proc/self/task")) - before]
kinds = [type(p).__name__ for p in (executable.current.selector.megakernel or executable.plain).phases]
print(json.dumps({
    "units": session.device.compute_units, "cores": cores, "kinds": kinds,
    "equal": bool(np.array_equal(first[0], last[0])), "sum": float(last[0].sum()),
}))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity of threads")
def test_one_core_of_several(rt: Runtime, tmp_path: Path) -> None:
    if rt.info.family != "pocl" or os.cpu_count() == 1:
        pytest.skip("PoCL's threads on a machine of several cores")
    (tmp_path / "m.onnx").write_bytes(dense().SerializeToString())
    core = max(os.sched_getaffinity(0))
    environment = {k: v for k, v in os.environ.items() if k not in ("POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT")}
    environment |= {"OPALITE_STRATEGY": "megakernel", "OPALITE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _ONE_CORE, str(core), str(tmp_path / "m.onnx"), rt.info.id]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["units"] == 1
    assert all(c == [core] for c in found["cores"])
    assert "HostThreadLoop" in found["kinds"]  # the calling thread walks it alone
    assert found["equal"]
    assert np.isfinite(found["sum"])
