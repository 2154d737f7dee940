"""The state of the installed package, which is part of the keys of what its code made."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import knobs
from .cache_keys import digest


@cache
def package_state() -> str:
    """Digest of this package's files, and of the versions of packages that import and constant folding depend on.

    Times of files count in whole seconds, because layers of a container image keep no more.
    """
    root = Path(knobs.__file__).parent
    parts = [f"{name} {_version(name)}" for name in ("opalite", "onnx", "numpy")]
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n != "__pycache__")
        for name in sorted(files):
            path = os.path.join(folder, name)
            with suppress(OSError):
                found = os.stat(path)
                parts.append(f"{os.path.relpath(path, root)} {int(found.st_mtime)} {found.st_size}")
    return digest(*parts)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
