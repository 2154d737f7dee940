"""A model's file: parts are what they were when it was opened, or there is an error."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opalite.errors import ModelFormatError
from opalite.ir.constants.model_file import ModelFile

CONTENTS = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8).tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.onnx"
    found.write_bytes(CONTENTS)
    return found


def rewrite(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as f:
        f.write(bytes(len(CONTENTS)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(bytes(len(CONTENTS)))
    other.replace(path)


@pytest.mark.parametrize("offset, nbytes", [(0, 10), (7, 290_000), (0, 300_000), (299_999, 1), (5, 0)])
def test_parts_are_what_the_file_holds(path: Path, offset: int, nbytes: int) -> None:
    file = ModelFile(path)
    assert file.size == len(CONTENTS)
    assert file.read(offset, nbytes).tobytes() == CONTENTS[offset : offset + nbytes]
    assert file.digest() == hashlib.blake2b(CONTENTS).hexdigest()


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("how", [rewrite, lambda p: os.truncate(p, 100), lambda p: p.write_bytes(CONTENTS + b"x")])
def test_what_is_written_into_it_is_found_out(path: Path, how: Callable[[Path], None], knows: bool) -> None:
    file = ModelFile(path)
    if knows:
        file.digest()
    how(path)
    with pytest.raises(ModelFormatError, match=r"model.onnx' has changed since the session was opened: open a new"):
        file.read(0, 300_000)


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("how", [replace, Path.unlink, lambda p: p.rename(p.with_name("moved"))])
def test_a_file_that_is_replaced_or_moved_is_still_the_same(
    path: Path, how: Callable[[Path], None], knows: bool
) -> None:
    file = ModelFile(path)
    if knows:
        file.digest()
    how(path)
    for _ in range(2):
        assert file.read(0, 300_000).tobytes() == CONTENTS


def test_a_file_whose_digest_is_known_may_be_touched(path: Path) -> None:
    file = ModelFile(path)
    file.digest()
    path.touch()
    path.chmod(0o600)
    assert file.read(10, 10).tobytes() == CONTENTS[10:20]


def test_several_processes_read_one_open_file(path: Path) -> None:
    file = ModelFile(path)
    child = os.fork()
    if child == 0:
        same = all(file.read(i, 1000).tobytes() == CONTENTS[i : i + 1000] for i in range(0, 200_000, 997))
        os._exit(0 if same else 1)
    for i in range(0, 200_000, 991):
        assert file.read(i, 1000).tobytes() == CONTENTS[i : i + 1000]
    assert os.waitpid(child, 0)[1] == 0


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ModelFile(tmp_path / "none")
