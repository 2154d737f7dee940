"""The child of checks_in_child.py: checks a file, and writes a line of JSON before each run and after it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ...cl.runtime import find_runtime
from ...errors import OpaliteError
from ...ir.load_plugins import load_plugin
from .check_kernels import check_module


def _main(path: str, device: str | None = None) -> None:
    """Write the events that `check_file` reads. What the file prints goes to stderr."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(event: str, data: Any = None) -> None:
        events.write(json.dumps([event, data]) + "\n")
        events.flush()

    try:
        rt = find_runtime(device)
        tell("device", [rt.info.title, rt.info.id])
        for check in check_module(load_plugin(path), rt, closes=True, starting=lambda c: tell("start", vars(c))):
            tell("check", vars(check))
    except OpaliteError as e:
        tell("fault", str(e))
    else:
        tell("end")


if __name__ == "__main__":
    _main(*sys.argv[1:])
