"""Runs `opalite kernel ...` at each change of a file's folder, each time in a process of its own.

A kernel that writes outside its tensors may take its process down; the watch goes on.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ..errors import InputError

_PERIOD_S = 0.2
_SUFFIXES = (".py", ".cl", ".h")
_ENDED = 130  # exit status after Ctrl-C


def watch_file(file: str, words: Sequence[str], wait: Callable[[float], None] = time.sleep) -> None:
    """Run `opalite kernel WORDS` now and at each change until Ctrl-C, which exits with 130.

    InputError if there is no `file`.
    """
    path = Path(file)
    if not path.is_file():
        raise InputError(f"there is no file '{file}' to watch")
    seen: dict[Path, tuple[int, int]] = {}
    try:
        while True:
            now = _stamps(path.resolve().parent)
            if now != seen:
                changed = sorted(p.name for p in now.keys() | seen.keys() if now.get(p) != seen.get(p))
                if seen:
                    click.echo(f"\n{time.strftime('%H:%M:%S')} {', '.join(changed)} changed")
                seen = now
                _run(words)
                click.echo(f"watching {path.resolve().parent}; Ctrl-C ends")
            wait(_PERIOD_S)
    except KeyboardInterrupt:
        sys.exit(_ENDED)


def _run(words: Sequence[str]) -> None:
    child = subprocess.Popen([sys.executable, "-m", "opalite", "kernel", *words])
    try:
        status = child.wait()
    except KeyboardInterrupt:
        child.kill()
        child.wait()
        raise
    if status < 0:
        click.echo(f"the kernel ended its process by signal {-status}: it reads or writes outside its tensors")


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Time and size of each source file in the folder."""
    found = {}
    for path in folder.iterdir():
        if path.suffix in _SUFFIXES:
            try:
                stat = path.stat()
            except OSError:  # an editor replaces it
                continue
            found[path] = stat.st_mtime_ns, stat.st_size
    return found
