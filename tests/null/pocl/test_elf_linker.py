"""The linker of PoCL's kernels, on an object made by hand: a function that uses each way of reaching a symbol."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from opalite import knobs
from opalite.pocl import elf_linker, provide_linker
from opalite.pocl.elf_linker import LinkError, link

# int f(int x) { return abs(x) + constant + *&counter + *pointer; }  with int *pointer = &counter, and abs elsewhere.
CODE = bytes.fromhex(
    "4883ec08"  # sub rsp, 8
    "e800000000"  # call abs                    at 5
    "030500000000"  # add eax, [rip + constant]    at 11
    "488b0d00000000"  # mov rcx, [rip + entry of counter]  at 18
    "0301"  # add eax, [rcx]
    "488b0d00000000"  # mov rcx, [rip + pointer]     at 27
    "0301"  # add eax, [rcx]
    "4883c408c3"  # add rsp, 8; ret
)
ABS64, PC32, PLT32, REX_GOTPCRELX, ABS32S = 1, 2, 4, 42, 11
TEXT, CONSTANTS, DATA, BSS = 1, 3, 4, 6  # numbers of sections
SECTION, F, COUNTER, ABSOLUTE_VALUE, ROOM = 1, 2, 3, 4, 5  # numbers of symbols
DATA_SECTION = 6


def make_object(text_relocations: list[tuple[int, int, int, int]] | None = None) -> bytes:
    """An object of x86-64. Relocations of the code: (offset, type, symbol, addend)."""
    relocations = text_relocations or [
        (5, PLT32, ABSOLUTE_VALUE, -4),
        (11, PC32, SECTION, -4),
        (18, REX_GOTPCRELX, COUNTER, -4),
        (27, PC32, DATA_SECTION, -4),
    ]
    strings = b"\0f\0counter\0abs\0room\0"
    symbols = [
        (0, 0, 0, 0, 0, 0),
        (0, 0x03, 0, CONSTANTS, 0, 0),
        (strings.index(b"f\0"), 0x12, 0, TEXT, 0, len(CODE)),
        (strings.index(b"counter"), 0x11, 0, DATA, 8, 4),
        (strings.index(b"abs"), 0x10, 0, 0, 0, 0),
        (strings.index(b"room"), 0x11, 0, BSS, 0, 4096),
        (0, 0x03, 0, DATA, 0, 0),
    ]
    rela = b"".join(struct.pack("<QQq", at, symbol << 32 | kind, addend) for at, kind, symbol, addend in relocations)
    data_rela = struct.pack("<QQq", 0, COUNTER << 32 | ABS64, 0)
    symtab = b"".join(struct.pack("<IBBHQQ", *s) for s in symbols)
    # type, flags, contents or size, link, info, alignment, size of an entry
    sections: list[tuple[int, int, bytes | int, int, int, int, int]] = [
        (0, 0, b"", 0, 0, 0, 0),
        (1, 6, CODE, 0, 0, 16, 0),
        (4, 0, rela, 7, TEXT, 8, 24),
        (1, 2, struct.pack("<i", 100), 0, 0, 4, 0),
        (1, 3, struct.pack("<Qi", 0, 5), 0, 0, 8, 0),
        (4, 0, data_rela, 7, DATA, 8, 24),
        (8, 3, 4096, 0, 0, 64, 0),
        (2, 0, symtab, 8, 2, 8, 24),
        (3, 0, strings, 0, 0, 1, 0),
    ]
    body, headers = bytearray(64), b""
    for kind, flags, contents, link_, info, align, entry in sections:
        body += bytes(-len(body) % max(align, 1))
        size = contents if isinstance(contents, int) else len(contents)
        headers += struct.pack("<IIQQQQIIQQ", 0, kind, flags, 0, len(body), size, link_, info, align, entry)
        body += b"" if isinstance(contents, int) else contents
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    counts = (64, 0, 0, 64, len(sections), 0)
    body[:64] = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, 62, 1, 0, 0, len(body), 0, *counts)
    return bytes(body) + headers


runs_here = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the library is for x86-64 Linux"
)


@runs_here
def test_a_function_reaches_everything(tmp_path: Path) -> None:
    (tmp_path / "f.so").write_bytes(link(make_object()))
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    assert library.f(-7) == 7 + 100 + 5 + 5
    counter = ctypes.c_int.in_dll(library, "counter")
    counter.value = 50
    assert library.f(3) == 3 + 100 + 50 + 50
    room = (ctypes.c_char * 4096).in_dll(library, "room")
    assert room.raw == bytes(4096)
    room[4095] = b"x"
    with pytest.raises(AttributeError):
        _ = library.g


@runs_here
def test_it_is_called_as_clang_calls_ld(tmp_path: Path) -> None:
    (tmp_path / "f.o").write_bytes(make_object())
    flags = ["--hash-style=both", "--eh-frame-hdr", "-m", "elf_x86_64", "-shared", "-o", "f.so", "-L/usr/lib", "f.o"]
    command = [sys.executable, "-IS", elf_linker.__file__, *flags, "-lgcc", "--as-needed", "-lgcc_s", "-lc"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ctypes.CDLL(str(tmp_path / "f.so")).f(0) == 110


@pytest.mark.parametrize(
    "relocation, told",
    [
        ((11, ABS32S, SECTION, -4), "type 11"),
        ((11, PC32, ABSOLUTE_VALUE, -4), "a relative address of the external b'abs'"),
        ((11, ABS64, COUNTER, 0), "read-only section"),
        ((len(CODE) - 2, PC32, SECTION, -4), "past the end"),
        ((11, PC32, SECTION, 1 << 40), "out of reach"),
        ((11, PC32, 0, 0), "without a symbol"),
    ],
)
def test_what_it_does_not_know_is_refused(relocation: tuple[int, int, int, int], told: str) -> None:
    with pytest.raises(LinkError, match=told):
        link(make_object([relocation]))


def test_damaged_objects_are_refused_or_linked() -> None:
    whole, rng = make_object(), random.Random(1)
    for end in range(0, len(whole), 7):
        with pytest.raises(LinkError):
            link(whole[:end])
    refused = 0
    for _ in range(2000):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        try:
            link(bytes(damaged))
        except LinkError:
            refused += 1
    assert refused > 100


def test_a_failure_says_which_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.o").write_bytes(b"no object")
    assert elf_linker.main(["-o", str(tmp_path / "x.so"), str(tmp_path / "bad.o")]) == 1
    assert "bad.o" in capsys.readouterr().err
    assert not (tmp_path / "x.so").exists()


@runs_here
@pytest.mark.parametrize("folder", ["bin", "a folder with spaces and a name " + 60 * "x", "it's"])
def test_the_script_runs_by_any_interpreters_path(tmp_path: Path, folder: str) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    script = tmp_path / "ld"
    script.write_text(provide_linker._script(str(python), Path(elf_linker.__file__).parent))
    script.chmod(0o700)
    assert provide_linker._fault(str(script)) is None


@runs_here
def test_a_system_without_a_compilers_files_gets_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provide_linker, "_COMPILER_LIBRARY", ("/nonexistent/libgcc.a",))
    monkeypatch.setenv("COMPILER_PATH", "/mine")
    assert provide_linker.system_linker() is None
    provide_linker._find()
    ours, theirs = knobs.foreign("COMPILER_PATH").split(":")
    assert theirs == "/mine"
    assert provide_linker._fault(f"{ours}/ld") is None
    assert os.stat(ours).st_mode & 0o077 == 0
