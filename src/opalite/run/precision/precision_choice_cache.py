"""PrecisionChoiceCache: stores the choices of precision 'auto' in the cache folder, for later processes.

A choice is JSON at precision/AB/KEY.json. KEY is a digest of the model's bytes, the device with its driver, memory,
tolerance, and this package's files. A damaged file is removed with one log line, and the choice is made again.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...cache.cache_folder import discard, usable_folder, write_json
from ...cache.cache_keys import digest
from ...cl.runtime import Runtime
from ...errors import InputError
from ...ir.model_edits import ModelEdits
from ..model.compile_options import CompileOptions
from ..model.plans.plan_key import code_state, device_state, model_digest
from .precision_choice import PrecisionChoice

_log = logging.getLogger(__name__)
_FORMAT = "opalite-choice"
_VERSION = 1


class PrecisionChoiceCache:
    """The stored choice of one model for one device and tolerance."""

    def __init__(self, folder: Path, key: str) -> None:
        self.path = folder / "precision" / key[:2] / f"{key}.json"
        self._key = key

    def load(self) -> PrecisionChoice | None:
        """The choice; None if none is stored or it cannot be used."""
        try:
            raw = json.loads(self.path.read_text())
            if raw["format"] != _FORMAT or raw["version"] != _VERSION or raw["key"] != self._key:
                raise ValueError("it is of another format, or belongs to another key")
            if raw["sum"] != _sum(raw["choice"]):
                raise ValueError("its contents are damaged")
            choice = PrecisionChoice.from_raw(raw["choice"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, InputError) as e:
            _log.warning("removed choice %s… of precision from the cache: %s", self._key[:12], e)
            discard(self.path)
            return None
        with suppress(OSError):  # its last use, for eviction; a read-only cache serves all the same
            os.utime(self.path)
        return choice

    def save(self, choice: PrecisionChoice) -> None:
        """Store `choice` in place of any other. A failure is logged."""
        raw = choice.to_raw()
        contents = {"format": _FORMAT, "version": _VERSION, "key": self._key, "sum": _sum(raw), "choice": raw}
        if fault := write_json(self.path, contents):
            _log.info("the choice of precision is not stored: %s", fault)


def _sum(raw: Any) -> str:
    return digest(json.dumps(raw, sort_keys=True))


def open_precision_choices(
    model: str | os.PathLike[str] | bytes, rt: Runtime, options: CompileOptions, edits: ModelEdits | None = None
) -> PrecisionChoiceCache | None:
    """The cache of the choice for `model`; None without a cache folder, or for a model that cannot be read twice."""
    kept = usable_folder()
    if kept is None:
        return None
    if not isinstance(model, bytes) and not (isinstance(model, str | os.PathLike) and Path(model).is_file()):
        return None
    try:
        contents = model_digest(model)
    except OSError:
        return None
    edited = edits.digest() if edits else ""
    parts = [contents, edited, *device_state(rt), options.memory, repr(options.tolerance), *code_state()]
    return PrecisionChoiceCache(kept, digest(*parts))
