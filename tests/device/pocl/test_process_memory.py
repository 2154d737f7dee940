"""What PoCL keeps in a process that leaves compiling to others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opalite.cl.runtime import Runtime

PROGRAMS = 6
PROGRAM = f"""
import json, re, sys
from pathlib import Path
import numpy as np
from opalite.cl.runtime import find_runtime
rt = find_runtime("cpu")
resident = sum(int(m[1]) for m in re.finditer(r"/libpocl[^/\\n]*\\n(?:[A-Z].*\\n)*?Rss: +(\\d+) kB",
                                              Path("/proc/self/smaps").read_text()))
source = "kernel void put(global float *x) {{ x[get_global_id(0)] = sin((float)VALUE) * get_local_size(0); }}"
found = []
for value in range({PROGRAMS}):
    program = rt.build(source, f"-DVALUE={{value}}", "put.cl")
    x = rt.allocate(16)
    y = np.empty(4, np.float32)
    for group in ((1,), (2,), (4,)):
        rt.record([rt.prepare(program, "put", [x], (4,), group)]).run()
        rt.read(x, y)
        found += y.tolist()
folder = Path(sys.argv[1]) / "pocl"
stored = [p.stat().st_size for p in (folder.parent / "programs").glob("*/*.bin")]
print(json.dumps({{"values": found, "built": rt.counters.programs_built, "library KiB": resident, "stored": stored,
                  "bitcode": [str(p) for p in folder.rglob("program.bc")]}}))
"""


def run(cache: Path, **changes: str) -> dict[str, Any]:
    environment = {**os.environ, "OPALITE_CACHE_DIR": str(cache), **changes}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(cache)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def _is_pocl(rt: Runtime) -> None:
    if rt.info.family != "pocl" or sys.platform != "linux" or "LLVM 14" not in rt.device.platform.version:
        pytest.skip("PoCL with LLVM 14, on Linux")


@pytest.mark.usefixtures("_is_pocl")
def test_a_process_with_programs_has_little_of_llvm_in_memory(tmp_path: Path) -> None:
    """Neither what the driver's start has read of its library (26 MB), nor the programs' bitcode."""
    first = run(tmp_path)
    assert first["built"] == PROGRAMS
    later = run(tmp_path)
    assert (later["built"], later["values"]) == (0, first["values"])
    assert later["library KiB"] < 10_000
    assert later["bitcode"] == [], "PoCL would parse it, and keep it"
    assert len(later["stored"]) == PROGRAMS
    assert max(later["stored"]) < 25_000, "of some 50,000 with bitcode"


@pytest.mark.usefixtures("_is_pocl")
def test_who_wants_kernels_compiled_for_sizes_of_groups_gets_that(tmp_path: Path) -> None:
    asked = {"POCL_WORK_GROUP_SPECIALIZATION": "1"}
    first = run(tmp_path, **asked)
    later = run(tmp_path, **asked)
    assert later["values"] == first["values"]
    assert len(later["bitcode"]) == PROGRAMS
