"""docs/add-a-kernel.md, followed line by line in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opalite.cl.runtime import Runtime

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "add-a-kernel.md"
_BLOCK = re.compile(r"(?:^`(?P<path>[\w./]+)`\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the page speaks of."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_page_holds(rt: Runtime, checkout: Path) -> None:
    """Each block under a path is written to that file, each line of a shell's block is run there."""
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(checkout / "src"), "OPALITE_DEVICE": rt.info.id}
    said: list[str] = []
    for block in _BLOCK.finditer(PAGE.read_text()):
        path, language, text = block.group("path", "language", "text")
        if language != "sh":
            assert path, f"a block is under no file name:\n{text}"
            assert not (checkout / path).exists(), f"{path} is there already"
            (checkout / path).write_text(text)
            continue
        for line in text.splitlines():
            done = subprocess.run(line, shell=True, cwd=checkout, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            said.append(done.stdout)
    assert said[0].count("agrees with the reference") == 3  # 8 does not divide 12
    passed = re.search(r"(\d+) passed", said[1])
    assert passed
    assert int(passed[1]) >= 5  # the kernel refuses the other cases
