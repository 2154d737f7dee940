"""find_devices: enumerates OpenCL devices in a child process, since drivers start threads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ... import knobs
from ..wire.serve_errors import NotReady

_CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from opalite.cl.device.enumerate_devices import find_device, list_all
from opalite.errors import OpaliteError
asked = sys.argv[2:]
try:
    found = [find_device(a) for a in asked] or [f for f in list_all().devices if f.usable] or [find_device()]
except OpaliteError as e:
    sys.exit(str(e))
print(json.dumps([[f.info.id, f.info.on_host] for f in found]))
"""


class Device(NamedTuple):
    """An OpenCL device. on_host: a CPU device."""

    id: str
    on_host: bool


def find_devices(asked: Sequence[str]) -> tuple[Device, ...]:
    """The devices named in `asked`, else by OPALITE_DEVICE, else all. NotReady for a missing one."""
    named = tuple(asked) or tuple(filter(None, [knobs.get("OPALITE_DEVICE")]))
    command = [sys.executable, "-P", "-c", _CODE, str(Path(__file__).parents[3]), *named]
    done = subprocess.run(command, env=knobs.environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise NotReady(done.stderr.decode(errors="replace").strip() or "no OpenCL device can be used")
    return tuple(Device(*found) for found in json.loads(done.stdout))
