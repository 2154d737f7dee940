"""The OpenCL devices of this machine, found by a process of its own: drivers start threads where they are asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ... import knobs
from ..wire.failures import NotReady

_CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from opalite.cl.devices import find_device, list_all
asked = sys.argv[2]
found = [find_device(asked)] if asked else [f for f in list_all().devices if f.usable]
print(json.dumps([f.info.id for f in found] or [find_device().info.id]))
"""


def find_devices() -> tuple[str, ...]:
    """Ids of all devices that can be used, or of that which OPALITE_DEVICE names. NotReady where there is none."""
    command = [sys.executable, "-P", "-c", _CODE, str(Path(__file__).parents[3]), knobs.get("OPALITE_DEVICE") or ""]
    done = subprocess.run(command, env=knobs.environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NotReady(f"no OpenCL device can be used: {reason}")
    return tuple(json.loads(done.stdout))
