"""Whether the system's loader takes the machine code of a program binary: PoCL ends the process where it does not.

Opalite's linker (elf_linker.py) once wrote libraries without a header that says what stack they need. On x86-64 the
loader then wants an executable one, and refuses that from glibc 2.41 on. Caches and bundles of then hold such
libraries. Needs no OpenCL.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_MARK = b"\x7fELF\x02\x01"  # of 64 bits, the least significant byte first
_SHARED, _X86_64, _STACK, _EXECUTE = 3, 62, 0x6474E551, 1


class UnloadableError(Exception):
    """Why the system's loader refuses a program's machine code, which is to be made anew."""


def check_loadable(files: Mapping[str, memoryview]) -> None:
    """UnloadableError if the loader refuses a library among a program's `files`, by path."""
    for path, contents in files.items():
        fault = load_fault(contents) if path.endswith(".so") else None
        if fault is not None:
            raise UnloadableError(f"its machine code {path.rpartition('/')[2]} cannot be loaded: {fault}")


def load_fault(library: bytes | memoryview) -> str | None:
    """What the headers of a shared library have that the loader refuses; None for nothing."""
    try:
        ident, kind, machine, _, _, first, _, _, _, size, count, *_ = _HEADER.unpack_from(library)
        if ident[: len(_MARK)] != _MARK or kind != _SHARED or size != _SEGMENT.size:
            return "it is no shared library"
        segments = [_SEGMENT.unpack_from(library, first + i * size) for i in range(count)]
    except struct.error:
        return "it is truncated"
    flags = [s[1] for s in segments if s[0] == _STACK]
    # Other processors need no executable stack where nothing is said.
    if (not flags and machine == _X86_64) or any(f & _EXECUTE for f in flags):
        return "it asks for an executable stack"
    return None
