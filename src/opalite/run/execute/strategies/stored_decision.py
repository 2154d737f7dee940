"""Decisions on strategies, kept in the cache folder: a later process takes them from its first run on.

An entry lies beside the device's programs. Its key is the content of the Program, device and driver, and the state of
this package, so that nothing else has to know of it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any, TypeAlias

from ....cache.binary_store import FORMAT
from ....cache.cache_keys import digest
from ....cache.package_state import package_state
from ....cl.runtime import Runtime
from ....plan.program import LaunchStep, LocalArg, Program, SlotArg, Step, StepArg

Decision: TypeAlias = dict[str, Any]
"""An entry, as JSON."""
VALID_RUNS = 1000
"""Runs of a process after which a decision of an earlier process is measured again."""


def decision_key(rt: Runtime, program: Program, kind: str, *more: object) -> str:
    """The key of a decision on the launches of `program`. more: plain data that it depends on besides."""
    sha = hashlib.blake2b()
    for source in program.sources:
        sha.update(f"{len(source.text)} {source.options}\0".encode())
        sha.update(source.text.encode())
    sha.update(repr([_content(step) for step in program.steps]).encode())
    return digest(str(FORMAT), rt.fingerprint, package_state(), f"decision: {kind}", repr(more), sha.hexdigest())


def find_decision(rt: Runtime, key: str) -> Decision | None:
    """The decision of an earlier process or session, if there is one."""
    stored = None if rt.store is None else rt.store.get(key)
    return None if stored is None else json.loads(zlib.decompress(stored))


def keep_decision(rt: Runtime, key: str, decision: Decision) -> None:
    """Store a decision in place of an earlier one."""
    if rt.store is not None:
        rt.store.put(key, zlib.compress(json.dumps(decision).encode(), 1), replace=True)


def _content(step: Step) -> object:
    """A step without names and costs, as plain data."""
    if not isinstance(step, LaunchStep):
        return type(step).__name__, getattr(step, "host", None), getattr(step, "slot", None)
    sizes = step.grid, step.group, step.open_group, step.walk, step.own
    return step.source, step.entry, *sizes, [_argument(a) for a in step.args]


def _argument(a: StepArg) -> object:
    if isinstance(a, SlotArg):
        return a.slot
    return ("local", a.nbytes) if isinstance(a, LocalArg) else (a.value.dtype.char, a.value.tobytes())
