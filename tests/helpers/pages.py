"""Pages of docs/ that are followed line by line in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"(?:^`(?P<path>[\w./]+)`\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(page: str, checkout: Path, device: str) -> list[str]:
    """What the lines of the page's shell blocks print, each run in the empty folder `checkout` on the device `device`.

    A block under a path is written to that file, which must be new; one of language "diff" changes a file: lines
    that begin with a space must be there once, in this order, and + lines come between them.
    """
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", checkout)
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    folders = os.pathsep.join((str(checkout / "src"), *filter(None, [os.environ.get("PYTHONPATH")])))
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": folders, "OPALITE_DEVICE": device}
    said: list[str] = []
    for block in _BLOCK.finditer((ROOT / "docs" / page).read_text()):
        path, language, text = block.group("path", "language", "text")
        if language == "sh":
            for line in text.splitlines():
                done = subprocess.run(line, shell=True, cwd=checkout, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
                said.append(done.stdout)
            continue
        assert path, f"a block is under no file name:\n{text}"
        file = checkout / path
        if language == "diff":
            _change(file, text)
        else:
            assert not file.exists(), f"{path} is there already"
            file.write_text(text)
    return said


def _change(file: Path, text: str) -> None:
    lines = [(line[:1], line[1:] + "\n") for line in text.splitlines()]
    before = "".join(line for mark, line in lines if mark in " -")
    assert file.read_text().count(before) == 1, f"{file} has not once:\n{before}"
    file.write_text(file.read_text().replace(before, "".join(line for mark, line in lines if mark in " +")))
