"""Some dozen damaged files of each kind, by seeds: `python -m tests.fuzz.corrupt` runs as many as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="each damaged file is tried in a forked process")

# The process that forks must not have started OpenCL, as this one has.
RUN = """
import sys
from pathlib import Path
from tests.fuzz.corrupt import Campaign, preload

preload()
campaign = Campaign(sys.argv[1], Path(sys.argv[2]), names=("classifier", "adder", "determinant"))
campaign.prepare()
maps = Path("/proc/self/maps")
assert not maps.exists() or "libpocl" not in maps.read_text(), "this process has started OpenCL"
campaign.run(0, int(sys.argv[3]))
for f in campaign.faults:
    print(f)
print(len(campaign.found), "seeds,", len({f.kind for f in campaign.found}), "kinds")
"""


@pytest.mark.parametrize(("what", "count"), [("onnx", 90), ("opal", 90), ("tflite", 60), ("paddle", 60), ("cache", 8)])
def test_damaged_files_are_noticed(what: str, count: int, tmp_path: Path) -> None:
    """No death, no wrong answer, and no file where none belongs."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", RUN, what, str(tmp_path), str(count)]
    path = {"PYTHONPATH": ":".join([str(root), *filter(None, sys.path)])}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **path}, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[:-1] == []
    assert done.stdout.startswith(f"{count} seeds,")
