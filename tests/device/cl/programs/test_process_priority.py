"""The niceness and time slices of worker processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys


def test_a_background_worker_gives_up_its_core_to_who_wakes_up() -> None:
    """By its niceness, and where Linux has it (6.12) by long slices."""
    code = """
import ctypes, os, struct
heard, told = os.pipe()
from opalite.cl.programs.process_priority import _ATTRIBUTES, _SLICE_NS, set_niceness
pid = os.fork()
if pid:
    assert set_niceness(pid, 7)
    os.write(told, b"x")
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.read(heard, 1)
memory = ctypes.create_string_buffer(_ATTRIBUTES.size)
failed = ctypes.CDLL(None).syscall({"x86_64": 315, "aarch64": 275}[os.uname().machine], 0, memory, len(memory), 0)
print(os.getpriority(os.PRIO_PROCESS, 0), failed or _ATTRIBUTES.unpack(memory.raw)[5] == _SLICE_NS)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    niceness, slice_is_long = done.stdout.split()
    assert int(niceness) == min(os.nice(0) + 7, 19)
    if sys.platform == "linux" and tuple(map(int, platform.release().split(".")[:2])) >= (6, 12):
        assert slice_is_long == "True"
