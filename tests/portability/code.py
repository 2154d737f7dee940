"""What code a result is of: the commit, and a digest of what decides how kernels are built and run.

A result is stale once that code is another. The digest is of the folders' contents as git has them, so that it
survives a rebase, which gives commits other names.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/opalite/kernels", "src/opalite/cl", "src/opalite/pocl")


def _git(*words: str, root: Path) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def commit(root: Path = ROOT) -> str:
    """The commit that is tested, with a + if its sources or tests were changed since; "" outside a checkout."""
    name = _git("rev-parse", "--short=8", "HEAD", root=root)
    return name + "+" if name and _git("status", "--porcelain", "--", "src", "tests", root=root) else name


def device_code(root: Path = ROOT) -> str:
    """Twelve hexadecimal digits of the contents of FOLDERS; "" outside a checkout, or where they were changed since."""
    trees = [_git("rev-parse", f"HEAD:{folder}", root=root) for folder in FOLDERS]
    if not all(trees) or _git("status", "--porcelain", "--", *FOLDERS, root=root):
        return ""
    return hashlib.sha256("".join(trees).encode()).hexdigest()[:12]


def last_change(root: Path = ROOT) -> str:
    """The commit that changed FOLDERS last."""
    return _git("log", "-1", "--format=%h", "--abbrev=8", "--", *FOLDERS, root=root)


def is_stale(cell: Mapping[str, Any], code: str) -> bool:
    """Whether a cell's results, or some of them, are of other code than `code`, a digest."""
    return not code or set(cell.get("digests", ())) != {code}


def stale_cells(data: Mapping[str, Mapping[str, Any]], code: str) -> list[tuple[str, str]]:
    """(implementation, row) of what is to be run again for the code of digest `code`."""
    return [(name, row) for name, c in data.items() for row, cell in c["rows"].items() if is_stale(cell, code)]
