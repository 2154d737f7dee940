"""Checks of a file's kernels in a child process (run_checks.py), which a faulty kernel may end, and this one tells."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field

from ...errors import PluginError
from .check_kernels import Check


@dataclass
class Checked:
    """The device, by its title and id, and the checks of a file."""

    device: str = ""
    device_id: str = ""
    checks: list[Check] = field(default_factory=list)


def check_file(path: str, device: str | None = None) -> Checked:
    """All checks of the kernels and operators that a .py file registers. PluginError if the file is at fault."""
    found, running = Checked(), None
    words = [sys.executable, "-m", f"{__package__}.run_checks", path, *([] if device is None else [device])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout is not None
            for event, data in map(json.loads, child.stdout):
                if event == "device":
                    found.device, found.device_id = data
                elif event == "fault":
                    raise PluginError(data)
                elif event == "start":
                    running = Check(**data)
                elif event == "check":
                    running = None
                    found.checks.append(Check(**data))
                elif event == "end":
                    return found
        except BaseException:
            child.kill()
            raise
    problem = _describe_end(child.returncode)
    if running is None:
        raise PluginError(f"'{path}': {problem}")
    found.checks.append(dataclasses.replace(running, problem=problem))
    return found


def _describe_end(status: int) -> str:
    """A sentence on how the child ended."""
    if status >= 0:
        return f"the process that ran it ended by itself, with status {status}: nothing in the file may call exit"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    if name in ("SIGSEGV", "SIGBUS"):
        return (
            f"the kernel ended its process ({name}): it reads outside of its tensors, or reads or writes far outside. "
            "Check each index against the sizes of what it points into; the checks after this one did not run"
        )
    return f"the kernel ended its process ({name}); the checks after this one did not run"
