"""The key of a plan: everything that decides it except the input types, the same on every machine.

Of the device it has the driver and the properties that select kernels, but no memory size, core count, caches or clock:
machines with the same processor share plans. Lack of memory shows when a plan is loaded. So a container image with a
filled cache folder works wherever it is started.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import Any

from .... import knobs
from ....cache.cache_keys import digest
from ....cache.package_state import package_state
from ....cl.runtime import Runtime
from ....ir.model_edits import ModelEdits
from ....ir.plugins import foreign_state
from ....plan.bundle.bundle import plan_key
from ..background.graph_compiler import Compiler


def plans_key(contents: str, compiler: Compiler, edits: ModelEdits | None = None) -> str:
    """Key of the plans of a model with the digest `contents`, changed by `edits`."""
    options = compiler.options
    settings = [knobs.get(name) for name in ("OPALITE_PLANNER", "OPALITE_BUFFER_ALIASING")]
    return digest(
        contents,
        edits.digest() if edits else "",
        *device_state(compiler.rt),
        options.precision if isinstance(options.precision, str) else options.precision.to_json(),
        json.dumps([options.memory, options.strict, *settings, *_named_kernels()]),
        *code_state(),
    )


def _named_kernels() -> list[list[str]]:
    """The kernels that settings exclude and prefer."""
    return [sorted(knobs.get(f"OPALITE_{verb}_KERNELS")) for verb in ("EXCLUDE", "PREFER")]


def device_state(rt: Runtime) -> tuple[str, str]:
    """The state of a device and its driver that decides plans and choices of precision."""
    return rt.fingerprint, json.dumps([plan_key(rt.info), rt.info.generation, rt.info.quirks])


def code_state() -> tuple[str, str]:
    """Digests of the code that plans: this package, and registered plugins."""
    return package_state(), foreign_state()


def model_digest(model: str | os.PathLike[str] | bytes) -> str:
    """Digest of the bytes of a model, or of its file. OSError if that cannot be read."""
    if isinstance(model, bytes):
        return hashlib.blake2b(model).hexdigest()
    with open(model, "rb") as f:
        return hashlib.file_digest(f, hashlib.blake2b).hexdigest()


def file_stamp(model: str | os.PathLike[str] | bytes) -> Any:
    """A stamp that changes with the model's file; None for bytes and missing files."""
    if not isinstance(model, bytes):
        with suppress(OSError):
            found = os.stat(model)
            return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None
