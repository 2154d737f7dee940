"""What the system's loader asks of the machine code of kernels, and that Opalite's linker gives it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from opalite.pocl import elf_linker, provide_linker
from opalite.pocl.check_loadable import UnloadableError, check_loadable, load_fault
from opalite.pocl.provide_linker import make_object

from .test_elf_linker import make_object as make_whole_object
from .test_elf_linker import runs_here

PT_LOAD, PT_GNU_STACK, EXECUTE, WRITE = 1, 0x6474E551, 1, 2


def segments(library: bytes) -> list[tuple[int, int]]:
    """(type, flags) of the program headers."""
    (first,), (size, count) = struct.unpack_from("<Q", library, 32), struct.unpack_from("<HH", library, 54)
    return [struct.unpack_from("<II", library, first + i * size) for i in range(count)]


def with_stack(library: bytes, flags: int | None) -> bytes:
    """The library with other flags of its stack; without that header for None, as another kind (PT_NULL)."""
    (first,), (size, count) = struct.unpack_from("<Q", library, 32), struct.unpack_from("<HH", library, 54)
    changed = bytearray(library)
    for at in range(first, first + size * count, size):
        if struct.unpack_from("<I", library, at)[0] == PT_GNU_STACK:
            struct.pack_into("<II", changed, at, *((0, 0) if flags is None else (PT_GNU_STACK, flags)))
    return bytes(changed)


@pytest.mark.parametrize("raw", [make_object(), make_whole_object()], ids=["smallest", "whole"])
def test_a_linked_library_asks_for_a_stack_that_is_not_executed(raw: bytes) -> None:
    library = elf_linker.link(raw)
    found = segments(library)
    assert [flags & EXECUTE for kind, flags in found if kind == PT_GNU_STACK] == [0]
    assert not any(flags & EXECUTE and flags & WRITE for kind, flags in found if kind == PT_LOAD)
    assert load_fault(library) is None


@pytest.mark.parametrize("flags", [None, 7, 5])
def test_a_library_that_wants_an_executable_stack_is_refused(flags: int | None) -> None:
    library = with_stack(elf_linker.link(make_object()), flags)
    assert load_fault(library) == "it asks for an executable stack"
    files = {"program.bc": memoryview(b"BC"), "probe/0-0-0/probe.so": memoryview(library)}
    with pytest.raises(UnloadableError, match=r"probe\.so cannot be loaded: it asks for an executable stack"):
        check_loadable(files)


def test_other_processors_need_no_executable_stack_by_default() -> None:
    library = bytearray(with_stack(elf_linker.link(make_object()), None))
    struct.pack_into("<H", library, 18, 183)  # aarch64
    assert load_fault(bytes(library)) is None


def test_what_is_no_whole_library_is_refused_and_other_files_are_not_looked_at() -> None:
    library = elf_linker.link(make_object())
    assert load_fault(make_object()) == load_fault(bytes(100)) == "it is no shared library"
    assert load_fault(library[:100]) == load_fault(b"") == "it is truncated"
    check_loadable({"program.bc": memoryview(b""), "probe.so": memoryview(library)})


def script(folder: Path, lines: str) -> str:
    """A program that stands for `ld`, called with -shared -o LIBRARY OBJECT."""
    path = folder / "ld"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)
    return str(path)


@runs_here
def test_a_linker_is_taken_by_what_becomes_of_an_object(tmp_path: Path) -> None:
    old = tmp_path / "old.so"
    old.write_bytes(with_stack(elf_linker.link(make_object()), None))
    for lines, told in (
        ("exit 0", "status 0"),
        ("echo no such option >&2; exit 1", "no such option"),
        ('cp "$4" "$3"', "it is no shared library"),
        (f'cp "{old}" "$3"', "executable stack"),
    ):
        fault = provide_linker._fault(script(tmp_path, lines))
        assert fault is not None
        assert told in fault
    assert "cannot be started" in (provide_linker._fault(str(tmp_path / "none")) or "")
