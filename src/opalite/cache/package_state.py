"""The state of the installed package, which is part of the keys of what its code made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from .. import knobs
from .cache_keys import digest


@cache
def package_state() -> str:
    """Digest of this package's files, and of the versions of packages that import and constant folding depend on.

    Times of files count in whole seconds, because layers of a container image keep no more.
    """
    parts = [f"{name} {_version(name)}" for name in ("opalite", "onnx", "numpy")]
    parts += _stamps(os.path.dirname(knobs.__file__), "")
    return digest(*parts)


def _stamps(folder: str, inside: str) -> Iterator[str]:
    """Name, time and size of each file in `folder` and below. A part of each start: paths are joined as text."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if not entry.is_dir():
            with suppress(OSError):
                stat = entry.stat()
                yield f"{inside}{entry.name} {int(stat.st_mtime)} {stat.st_size}"
        elif entry.name != "__pycache__":
            yield from _stamps(entry.path, f"{inside}{entry.name}/")


def _version(package: str) -> str:
    """The version of an installed package, '' without one. Its metadata are not parsed: that takes a millisecond."""
    with suppress(PackageNotFoundError):
        text = distribution(package).read_text("METADATA") or ""
        return next((line for line in text.splitlines() if line.startswith("Version:")), "")
    return ""
