"""Parser of PoCL's program binaries, and removal of their LLVM bitcode.

A binary has a header, the program's bitcode, and for each kernel metadata and machine code, as files with paths. PoCL
parses and keeps the bitcode of each loaded binary: 0.4 MB of memory for a small kernel, 10 MB for a megakernel, plus
LLVM's own code. It needs bitcode only to compile for further work-group sizes, and supports binaries without. Needs no
OpenCL.
"""

from __future__ import annotations

import re
import struct
from pathlib import PurePosixPath

_FORMATS = (8,)  # supported versions
_HEADER = struct.Struct("<8sQIIQ41s")  # magic, device, format, kernels, flags, name of the folder
_KERNEL = struct.Struct("<QQ")  # bytes of a kernel's record, and of the files at its end
_COUNT = struct.Struct("<I")
_NAME = r"[A-P]{2}/[A-P]{37}|_UNCACHED_\w{6}"
_BITCODE = "program.bc"
_ANY_SIZE = r"[^/]+/0-0-0/[^/]+\.so"  # machine code for every work-group size
_NO_BITCODE = (b"/program.none", b"\0")  # path and contents of the file in place of bitcode; PoCL needs one


def unpack(binary: bytes) -> tuple[str, dict[str, memoryview]] | None:
    """(folder name, files by path below it) of a binary; None for unknown formats."""
    found = _unpack_or_none(binary)
    return None if found is None else found[:2]


def without_bitcode(binary: bytes) -> bytes:
    """`binary` without bitcode, unless the format is unknown or a kernel lacks code for every work-group size."""
    found = _unpack_or_none(binary)
    if found is None:
        return binary
    _, files, end = found
    kernels = _HEADER.unpack_from(binary)[3]
    if next(iter(files)) != _BITCODE or sum(bool(re.fullmatch(_ANY_SIZE, name)) for name in files) < kernels:
        return binary
    first = b"".join(_COUNT.pack(len(text)) + text for text in _NO_BITCODE)
    return binary[: _HEADER.size] + first + binary[end:]


def _unpack_or_none(binary: bytes) -> tuple[str, dict[str, memoryview], int] | None:
    try:
        return _unpack(memoryview(binary))
    except (struct.error, ValueError, UnicodeDecodeError):
        return None


def _unpack(view: memoryview) -> tuple[str, dict[str, memoryview], int]:
    """Folder, files, and end of the first file. Raises ValueError and others for unknown formats."""
    magic, _, version, kernels, _, raw_name = _HEADER.unpack_from(view)
    name = raw_name.split(b"\0")[0].decode("ascii")
    if magic != b"poclbin\0" or version not in _FORMATS or not re.fullmatch(_NAME, name):
        raise ValueError("not a binary of a known format")
    path, contents, first = _file(view, _HEADER.size)
    files, at = {path: contents}, first
    for _ in range(kernels):
        size, nbytes = _KERNEL.unpack_from(view, at)
        end = at + size
        if end > len(view) or nbytes > size - _KERNEL.size:
            raise ValueError("a kernel ends past the binary")
        at = end - nbytes
        while at < end:
            path, contents, at = _file(view, at)
            files[path] = contents
        if at != end:
            raise ValueError("a file ends past its kernel")
    return name, files, first


def _file(view: memoryview, at: int) -> tuple[str, memoryview, int]:
    path, at = _text(view, at)
    contents, at = _text(view, at)
    relative = PurePosixPath(bytes(path).decode("ascii").lstrip("/"))
    if not relative.parts or ".." in relative.parts:
        raise ValueError(f"a file is called {relative}")
    return str(relative), contents, at


def _text(view: memoryview, at: int) -> tuple[memoryview, int]:
    (count,) = _COUNT.unpack_from(view, at)
    first = at + 4
    if first + count > len(view):
        raise ValueError("a file ends past the binary")
    return view[first : first + count], first + count
