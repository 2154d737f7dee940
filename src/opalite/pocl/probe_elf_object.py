"""A minimal x86-64 relocatable object with one empty function, to test a linker (provide_linker.py)."""

from __future__ import annotations

import struct

NAME = "opalite_probe"
"""Name of the function."""

_CODE = b"\xc3"  # ret
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_IDENT = b"\x7fELF\x02\x01\x01" + bytes(9)
_TEXT, _STRINGS = 1, 4  # numbers of sections


def make_object() -> bytes:
    """Bytes of the object file."""
    strings = f"\0{NAME}\0".encode()
    symbols = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + _SYMBOL.pack(1, 0x12, 0, _TEXT, 0, len(_CODE))
    # Name, type, flags, contents, link, info, alignment, size of an entry.
    sections: list[tuple[str, int, int, bytes, int, int, int, int]] = [
        ("", 0, 0, b"", 0, 0, 0, 0),
        (".text", 1, 6, _CODE, 0, 0, 16, 0),
        (".note.GNU-stack", 1, 0, b"", 0, 0, 1, 0),
        (".symtab", 2, 0, symbols, _STRINGS, 1, 8, _SYMBOL.size),
        (".strtab", 3, 0, strings, 0, 0, 1, 0),
    ]
    names = b"\0".join(name.encode() for name, *_ in sections) + b"\0.shstrtab\0"
    sections.append((".shstrtab", 3, 0, names, 0, 0, 1, 0))
    body, headers = bytearray(_HEADER.size), b""
    for name, kind, flags, contents, link, info, align, entry in sections:
        body += bytes(-len(body) % max(align, 1))
        at = names.index(f"{name}\0".encode())
        headers += _SECTION.pack(at, kind, flags, 0, len(body), len(contents), link, info, align, entry)
        body += contents
    body += bytes(-len(body) % 8)
    counts = (_HEADER.size, 0, 0, _SECTION.size, len(sections), len(sections) - 1)
    body[: _HEADER.size] = _HEADER.pack(_IDENT, 1, 62, 1, 0, 0, len(body), 0, *counts)
    return bytes(body) + headers
