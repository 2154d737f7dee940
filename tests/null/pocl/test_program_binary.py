"""PoCL's binaries, and what is taken out of them."""

from __future__ import annotations

import pytest

from opalite.pocl.program_binary import unpack, without_bitcode

from .test_program_folder import FILES, NAME, make_binary

HASHED = "AB/CDEFGHIJKLMNOPABCDEFGHIJKLMNOPABCDEFG"


@pytest.mark.parametrize("name", [NAME, HASHED], ids=["of a worker", "of a process that keeps PoCL's files"])
def test_without_bitcode_everything_else_stays(name: str) -> None:
    found = without_bitcode(make_binary(FILES, name))
    unpacked = unpack(found)
    assert unpacked is not None
    folder, files = unpacked
    (stands, nothing), *rest = files.items()
    assert folder == name
    assert dict(rest) == {path: contents for path, contents in FILES.items() if path != "program.bc"}
    assert (stands, len(nothing)) == ("program.none", 1), "PoCL asserts that there is a file, of at least a byte"
    assert without_bitcode(found) == found


@pytest.mark.parametrize(
    "files",
    [
        {"program.bc": b"BC", "f/8-1-1/f.so": b"\x7fELF"},
        {"program.bc": b"BC", "f/0-0-0/f.so": b"\x7fELF", "g/8-1-1/g.so": b"\x7fELF"},
        {"other": b"BC", "f/0-0-0/f.so": b"\x7fELF"},
    ],
    ids=["one size of groups", "one size for one kernel", "no bitcode in front"],
)
def test_bitcode_that_may_be_needed_stays(files: dict[str, bytes]) -> None:
    assert without_bitcode(make_binary(files)) == make_binary(files)


@pytest.mark.parametrize("binary", [b"", b"\x7fELF" + bytes(500), make_binary(FILES, version=99)])
def test_other_binaries_stay_as_they_are(binary: bytes) -> None:
    assert without_bitcode(binary) == binary
