"""Freed memory is kept, so that what is read next is not mapped anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
from opalite.serve.run_servers import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    pieces = [bytes(1 << 18) for _ in range(4)]
    del pieces
before = faults()
for _ in range(50):
    pieces = [bytes(1 << 18) for _ in range(4)]
    del pieces
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_pieces_are_not_mapped_anew() -> None:
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True).stdout)

    assert faults("keep") < 200
    assert faults("keep") < max(faults("plain") / 10, 200)
