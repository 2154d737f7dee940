"""The folder of PoCL's files: one process's at a time, and what lies in it is what the binaries hold."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opalite.cache.file_locks import remove_unused
from opalite.errors import DeviceError
from opalite.pocl.program_binary import unpack
from opalite.pocl.program_folder import BUILDS, PoclFolder, open_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders are locked by flock")

NAME = "_UNCACHED_a1B2c3"
FILES = {"program.bc": b"BC" * 500, "f/0-0-0/f.so": b"\x7fELF" + bytes(3000), "g/0-0-0/g.so": b"\x7fELF" + b"g" * 2000}


def text(raw: bytes) -> bytes:
    return struct.pack("<I", len(raw)) + raw


def make_binary(files: dict[str, bytes], name: str = NAME, version: int = 8) -> bytes:
    """As PoCL writes one: the program's own file, then each kernel with what is said of it and its files."""
    (first, program), *rest = files.items()
    found = struct.pack("<8sQIIQ41s", b"poclbin", 77, version, len(rest), 0, name.encode())
    found += text(b"/" + first.encode()) + text(program)
    for path, contents in rest:
        about = struct.pack("<I", 0) + text(b"kernel") + bytes(52)
        held = text(b"/" + path.encode()) + text(contents)
        found += struct.pack("<QQ", 16 + len(about) + len(held), len(held)) + about + held
    return found


@pytest.fixture
def folders() -> Iterator[list[PoclFolder]]:
    opened: list[PoclFolder] = []
    yield opened
    for folder in opened:
        close(folder)


def close(folder: PoclFolder) -> None:
    """What the end of its process does."""
    if folder.lock is not None:
        os.close(folder.lock)
        folder.lock = None


def open_(parent: Path, folders: list[PoclFolder]) -> PoclFolder:
    folders.append(open_folder(parent))
    return folders[-1]


def held(folder: PoclFolder) -> dict[str, bytes]:
    root = folder.path / NAME
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_files_of_a_binary() -> None:
    found = unpack(make_binary(FILES))
    assert found is not None
    assert found[0] == NAME
    assert found[1] == FILES


@pytest.mark.parametrize(
    "binary",
    [
        b"",
        b"\x7fELF" + bytes(500),
        make_binary(FILES, version=99),
        make_binary(FILES)[:-1],
        make_binary(FILES)[:400],
        make_binary(FILES, name="../../out"),
        make_binary({"program.bc": b"x", "../../out": b"x"}),
    ],
    ids=["empty", "foreign", "format", "cut", "cut early", "name outside", "file outside"],
)
def test_what_is_not_understood_is_left_to_pocl(binary: bytes, tmp_path: Path, folders: list[PoclFolder]) -> None:
    assert unpack(binary) is None
    folder = open_(tmp_path / "a" / "pocl", folders)
    (folder.path / "_UNCACHED_zzzzzz").mkdir()
    folder.install(binary)
    assert list(folder.path.iterdir()) == [], "of what an earlier process left nobody knows whether it is whole"
    assert {p.name for p in tmp_path.rglob("*")} == {"a", "pocl", "0", "0.lock"}


def test_two_processes_have_two_folders(tmp_path: Path, folders: list[PoclFolder]) -> None:
    one, two = open_(tmp_path, folders), open_(tmp_path, folders)
    assert one.path != two.path
    close(one)
    assert open_(tmp_path, folders).path == one.path


def test_a_killed_process_leaves_its_folder(tmp_path: Path, folders: list[PoclFolder]) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from opalite.pocl.program_folder import open_folder\n"
        "print(open_folder(Path(sys.argv[1])).path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert str(open_(tmp_path, folders).path) == done.stdout.strip()


def test_what_a_killed_process_had_under_way_goes(tmp_path: Path, folders: list[PoclFolder]) -> None:
    first = open_(tmp_path, folders)
    first.install(make_binary(FILES))
    (first.path / f"{BUILDS}x").mkdir()
    (first.path / f"{BUILDS}x" / "half").write_bytes(b"x")
    (first.path / "tempfile_x").write_bytes(b"")
    close(first)
    assert [p.name for p in open_(tmp_path, folders).path.iterdir()] == [NAME]


def damage(root: Path, how: str) -> None:
    file = root / "f/0-0-0/f.so"
    raw = file.read_bytes()
    if how == "cut":
        file.write_bytes(raw[:100])
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "bit":
        file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif how == "gone":
        file.unlink()
    elif how == "folder gone":
        file.unlink()
        file.parent.rmdir()
    elif how == "folder":
        file.unlink()
        file.mkdir()
    elif how == "file for a folder":
        file.unlink()
        file.parent.rmdir()
        file.parent.write_bytes(b"x")
    elif how == "link":
        file.rename(root / "elsewhere")
        file.symlink_to(root / "elsewhere")
    elif how == "more":
        (root / "f/1-1-1").mkdir()
        (root / "f/1-1-1/f.so").write_bytes(b"x")


HOW = ["cut", "empty", "bit", "gone", "folder gone", "folder", "file for a folder", "link", "more"]


@pytest.mark.parametrize("how", HOW)
def test_what_an_earlier_process_left_is_made_whole(how: str, tmp_path: Path, folders: list[PoclFolder]) -> None:
    first = open_(tmp_path, folders)
    first.install(make_binary(FILES))
    assert held(first) == FILES
    close(first)
    damage(first.path / NAME, how)
    second = open_(tmp_path, folders)
    assert second.path == first.path
    second.install(make_binary(FILES))
    assert held(second) == FILES
    assert not any(p.is_symlink() for p in second.path.rglob("*"))


def test_whole_files_are_not_written_again(tmp_path: Path, folders: list[PoclFolder]) -> None:
    first = open_(tmp_path, folders)
    first.install(make_binary(FILES))
    before = {p: p.stat().st_ino for p in first.path.rglob("*")}
    close(first)
    second = open_(tmp_path, folders)
    second.install(make_binary(FILES))
    assert {p: p.stat().st_ino for p in first.path.rglob("*")} == before


def test_what_nobody_checked_goes_before_anything_is_compiled(tmp_path: Path, folders: list[PoclFolder]) -> None:
    """PoCL looks for the files of a source by itself."""
    first = open_(tmp_path, folders)
    source = "AB/" + "CDEFGHIJKLMNOPABCDE" + "CDEFGHIJKLMNOPABCD"
    other = make_binary(FILES, source)
    first.install(make_binary(FILES))
    first.install(other)
    assert (first.path / source / "program.bc").is_file()
    (first.path / "left").write_bytes(b"x")
    close(first)
    second = open_(tmp_path, folders)
    second.install(make_binary(FILES))
    second.remove_unverified()
    assert [p.name for p in second.path.iterdir() if p.name != "AB"] == [NAME]
    assert not list((second.path / "AB").glob("*"))
    (second.path / "made").mkdir()
    second.remove_unverified()
    assert (second.path / "made").is_dir(), "what this process compiled stays"


def test_a_folder_in_use_is_not_removed(tmp_path: Path, folders: list[PoclFolder]) -> None:
    folder = open_(tmp_path, folders)
    assert not remove_unused(folder.path)
    assert folder.path.is_dir()
    close(folder)
    assert remove_unused(folder.path)
    assert not folder.path.exists()


def test_files_that_cannot_be_written_are_told(tmp_path: Path, folders: list[PoclFolder]) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from opalite.pocl.program_folder import open_folder\n"
        "folder = open_folder(Path(sys.argv[1])); binary = open(sys.argv[2], 'rb').read()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); folder.install(binary)"
    )
    (tmp_path / "binary").write_bytes(make_binary(FILES))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code, str(tmp_path / "pocl"), str(tmp_path / "binary")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert DeviceError.__name__ in done.stderr
    assert "cannot be written" in done.stderr
    assert "OPALITE_CACHE_DIR" in done.stderr


def test_without_a_cache_folder_files_are_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; from pathlib import Path; from opalite.pocl.program_folder import open_folder\n"
        "folder = open_folder(Path(sys.argv[1]) if sys.argv[1:] else None)\n"
        "folder.install(open(sys.argv[-1], 'rb').read()) if sys.argv[1:] else None\n"
        "print(folder.path.is_dir(), folder.path)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(tmp_path)}
    (tmp_path / "file").write_bytes(make_binary(FILES))
    for arguments in ([], [str(tmp_path / "file")]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        there, path = done.stdout.split(maxsplit=1)
        assert there == "True"
        assert Path(path.strip()).parent == tmp_path
        assert not Path(path.strip()).exists()
