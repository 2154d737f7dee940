"""Check that the dynamic loader accepts a program's machine code: otherwise PoCL ends the process.

Early versions of elf_linker.py wrote libraries without PT_GNU_STACK. For these the loader requests an executable stack,
which glibc 2.41 and later refuse. Old caches and bundles contain such libraries. Needs no OpenCL.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from .elf_linker import EHDR, PHDR

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_SHARED, _X86_64, _STACK, _EXECUTE = 3, 62, 0x6474E551, 1


class UnloadableError(Exception):
    """The dynamic loader refuses a program's machine code; the program must be built again."""


def check_loadable(files: Mapping[str, memoryview]) -> None:
    """Raise UnloadableError if the loader would refuse a library among `files` (by path)."""
    for path, contents in files.items():
        fault = load_fault(contents) if path.endswith(".so") else None
        if fault is not None:
            raise UnloadableError(f"its machine code {path.rpartition('/')[2]} cannot be loaded: {fault}")


def load_fault(library: bytes | memoryview) -> str | None:
    """Reason why the loader would refuse a shared library, by its ELF headers; None if the library is loadable."""
    try:
        ident, kind, machine, _, _, first, _, _, _, size, count, *_ = EHDR.unpack_from(library)
        if ident[: len(_MAGIC)] != _MAGIC or kind != _SHARED or size != PHDR.size:
            return "it is no shared library"
        segments = [PHDR.unpack_from(library, first + i * size) for i in range(count)]
    except struct.error:
        return "it is truncated"
    flags = [s[1] for s in segments if s[0] == _STACK]
    # Other processors default to a stack that is not executable.
    if (not flags and machine == _X86_64) or any(f & _EXECUTE for f in flags):
        return "it asks for an executable stack"
    return None
