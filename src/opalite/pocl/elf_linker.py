"""A linker for PoCL: converts one x86-64 relocatable object to a shared library, on systems without `ld`.

Longer than 400 lines: a stand-alone program, started for each kernel.

PoCL calls `ld` for every kernel, and aborts the process if there is none. provide_linker.py installs this program as
`ld`. It supports LLVM's position-independent code in the small code model; other objects are a LinkError. It imports
little of the standard library, because each kernel starts a process.

The library has three segments on separate pages: read-only (dynamic tables, constants), code (with a PLT entry for each
external function), and data (GOT, dynamic section, variables). PT_GNU_STACK requests a stack that is not executable,
which glibc 2.41 and later require. External symbols are resolved from the C library and libgcc at load time.

Sources: System V ABI, chapters 4 and 5; its AMD64 supplement, section 4.4.
"""

import os
import struct
import sys
from collections.abc import Sequence

PAGE = 4096
NEEDED = ("libc.so.6", "libm.so.6", "libgcc_s.so.1")
PROGRAM = "Opalite's linker of PoCL's kernels"

EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
PHDR = struct.Struct("<IIQQQQQQ")
SHDR = struct.Struct("<IIQQQQIIQQ")
SYM = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

IDENT = b"\x7fELF\x02\x01\x01" + bytes(9)
_ET_REL, _ET_DYN, _EM_X86_64 = 1, 3, 62
_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS = 2, 4, 8
_SHT_PLAIN = (1, 7, 0x70000001)  # PROGBITS, NOTE, X86_64_UNWIND
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC, _SHF_TLS = 1, 2, 4, 0x400
_SHN_ABS, _SHN_COMMON, _SHN_RESERVED = 0xFFF1, 0xFFF2, 0xFF00
_LOCAL = 0
_TLS, _IFUNC = 6, 10

_ABS64, _PC32, _PLT32, _GOTPCREL, _PC64, _GOTPCRELX, _REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_GLOB_DAT, _RELATIVE = 6, 8
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELAENT = 1, 4, 5, 6, 7, 8, 9
_DT_STRSZ, _DT_SYMENT, _DT_FLAGS = 10, 11, 30
_BIND_NOW = 8
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_SEGMENTS = 5
_JUMP = b"\xff\x25"  # jmp *disp32(%rip)
_JUMP_BYTES = 8


class LinkError(Exception):
    """The object uses a feature that this linker lacks."""


class _Section:
    """An allocated section of the object."""

    def __init__(self, kind: int, flags: int, data: bytearray, size: int, align: int) -> None:
        self.kind = kind
        self.flags = flags
        self.data = data
        self.size = size
        self.align = align
        self.address = 0  # in the library, after placement


class _Symbol:
    """A symbol of the object. section: None if the symbol is external or absolute."""

    def __init__(self, name: bytes, info: int, visibility: int, value: int, size: int) -> None:
        self.name = name
        self.info = info
        self.visibility = visibility
        self.value = value
        self.size = size
        self.section: _Section | None = None
        self.absolute = False

    @property
    def address(self) -> int:
        """Address in the library, after placement."""
        return self.value + (self.section.address if self.section is not None else 0)

    @property
    def is_external(self) -> bool:
        """Return whether the dynamic loader must resolve the symbol."""
        return self.section is None and not self.absolute

    @property
    def is_exported(self) -> bool:
        """Return whether the symbol is exported: global and not hidden."""
        return bool(self.name) and self.info >> 4 != _LOCAL and self.visibility in (0, 3) and not self.is_external


class _Relocation:
    """A relocation of the field at `offset` of `section`."""

    def __init__(self, section: _Section, offset: int, kind: int, symbol: _Symbol, addend: int) -> None:
        self.section = section
        self.offset = offset
        self.kind = kind
        self.symbol = symbol
        self.addend = addend


def link(raw: bytes) -> bytes:
    """Link the relocatable object `raw` into a shared library. Raises LinkError if that is not supported."""
    try:
        return _Library(_Object(raw)).bytes
    except (struct.error, IndexError, ValueError, OverflowError) as e:
        raise LinkError(f"the object is damaged ({e})") from e


class _Object:
    """A parsed relocatable object. Raises LinkError if it is not supported."""

    def __init__(self, raw: bytes) -> None:
        self.symbols: list[_Symbol] = []
        self.relocations: list[_Relocation] = []
        ident, kind, machine, *_, first, _, _, _, _, entry, count, _ = EHDR.unpack_from(raw)
        if ident[:6] != IDENT[:6] or kind != _ET_REL or machine != _EM_X86_64 or entry != SHDR.size:
            raise LinkError("not a relocatable object of x86-64")
        headers = [SHDR.unpack_from(raw, first + i * entry) for i in range(count)]
        kept: dict[int, _Section] = {}
        for i, (_, kind, flags, _, offset, size, _, _, align, _) in enumerate(headers):
            if not flags & _SHF_ALLOC:
                continue
            if flags & _SHF_TLS or kind not in (*_SHT_PLAIN, _SHT_NOBITS):
                raise LinkError(f"section {i} of type {kind}, flags {flags:#x}")
            if align > PAGE:
                raise LinkError(f"section {i} is aligned to {align} bytes")
            data = bytearray() if kind == _SHT_NOBITS else bytearray(raw[offset : offset + size])
            if kind != _SHT_NOBITS and len(data) != size:
                raise LinkError(f"section {i} is truncated")
            kept[i] = _Section(kind, flags, data, size, max(align, 1))
        self.sections = list(kept.values())
        if not any(s.flags & _SHF_EXEC and s.size for s in self.sections):
            raise LinkError("it has no code")
        tables = [h for h in headers if h[1] == _SHT_SYMTAB]
        if len(tables) != 1:
            raise LinkError(f"{len(tables)} symbol tables")
        self._read_symbols(raw, tables[0], headers[tables[0][6]], kept)
        for header in headers:
            if header[1] == _SHT_RELA and header[7] in kept:
                target = kept[header[7]]
                for offset, info, addend in _RELA.iter_unpack(_contents(raw, header)):
                    relocation = _Relocation(target, offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)
                    if offset + _width(relocation) > len(target.data):
                        raise LinkError(f"a relocation past the end of its section ({offset:#x})")
                    self.relocations.append(relocation)

    def _read_symbols(
        self, raw: bytes, table: Sequence[int], strings: Sequence[int], kept: dict[int, _Section]
    ) -> None:
        names = _contents(raw, strings)
        for name, info, other, index, value, size in SYM.iter_unpack(_contents(raw, table)):
            if info & 15 in (_TLS, _IFUNC):
                raise LinkError(f"symbol {_text(names, name)!r} of type {info & 15}")
            symbol = _Symbol(_text(names, name), info, other & 3, value, size)
            symbol.section = kept.get(index)
            if index == _SHN_COMMON:
                symbol.section = _Section(_SHT_NOBITS, _SHF_ALLOC | _SHF_WRITE, bytearray(), size, max(value, 1))
                symbol.value = 0
                self.sections.append(symbol.section)
            elif index == _SHN_ABS:
                symbol.absolute = True
            elif index >= _SHN_RESERVED:
                raise LinkError(f"symbol {symbol.name!r} in section {index:#x}")
            self.symbols.append(symbol)


def _contents(raw: bytes, header: Sequence[int]) -> bytes:
    """Contents of the section with that header."""
    return raw[header[4] : header[4] + header[5]]


def _text(table: bytes, offset: int) -> bytes:
    return table[offset : table.index(b"\0", offset)]


def _width(relocation: _Relocation) -> int:
    return 8 if relocation.kind in (_ABS64, _PC64) else 4


class _Library:
    """Places an object's sections, applies relocations, and writes the dynamic tables."""

    def __init__(self, made: _Object) -> None:
        self._object = made
        self._entries: dict[int, int] = {}  # GOT offset by id of the symbol
        self._jumps: dict[int, int] = {}  # PLT offset by id of the symbol
        self._dynamic_rela: list[tuple[int, int, int]] = []
        self._list_symbols()
        self._list_entries()
        self._place()
        for relocation in made.relocations:
            self._relocate(relocation)
        self._fill_entries()
        self.bytes = self._write()

    def _list_symbols(self) -> None:
        """Make the dynamic symbol table: external symbols, then exported ones."""
        used = {id(r.symbol): r.symbol for r in self._object.relocations if r.symbol.is_external}
        external = list(used.values())
        for symbol in external:
            if not symbol.name:
                raise LinkError("a relocation without a symbol, or against a section that is not kept")
        self._dynamic = [*external, *(s for s in self._object.symbols if s.is_exported)]
        self._number = {id(s): 1 + i for i, s in enumerate(self._dynamic)}
        self._external = len(external)
        self._strings = bytearray(b"\0")
        self._needed = [self._string(name.encode()) for name in NEEDED if external]
        self._names = [self._string(s.name) for s in self._dynamic]

    def _string(self, text: bytes) -> int:
        at = len(self._strings)
        self._strings += text + b"\0"
        return at

    def _list_entries(self) -> None:
        """Assign GOT entries, and PLT entries for external functions."""
        for r in self._object.relocations:
            jumps = r.kind == _PLT32 and r.symbol.is_external
            if jumps or r.kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
                self._entries.setdefault(id(r.symbol), 8 * len(self._entries))
            if jumps:
                self._jumps.setdefault(id(r.symbol), _JUMP_BYTES * len(self._jumps))
        self._entry_symbols = {id(r.symbol): r.symbol for r in self._object.relocations}

    def _place(self) -> None:
        """Assign an address to every section and table; it equals the file offset, except for NOBITS sections."""
        count = len(self._dynamic) + 1
        relas = sum(r.kind == _ABS64 for r in self._object.relocations) + len(self._entries)
        at = EHDR.size + _SEGMENTS * PHDR.size
        self._hash, at = at, at + 4 * (2 + count + count)
        self._symtab = at = _up(at, 8)
        self._rela = at = at + count * SYM.size
        self._strtab = at = at + relas * _RELA.size
        at += len(self._strings)
        sections = self._object.sections
        at = self._stack([s for s in sections if not s.flags & (_SHF_WRITE | _SHF_EXEC)], at)
        self._read_end = at
        self._code = at = _up(at, PAGE)
        at = self._stack([s for s in sections if s.flags & _SHF_EXEC], at)
        self._jump_table = at = _up(at, 16)
        self._code_end = at = at + _JUMP_BYTES * len(self._jumps)
        self._data = at = _up(at, PAGE)
        self._table = at
        self._dynamic_section = at = at + 8 * len(self._entries)
        at += 16 * (len(self._needed) + 10)
        written = [s for s in sections if s.flags & _SHF_WRITE]
        self._file_end = at = self._stack([s for s in written if s.kind != _SHT_NOBITS], at)
        self._data_end = self._stack([s for s in written if s.kind == _SHT_NOBITS], at)

    def _stack(self, sections: Sequence[_Section], at: int) -> int:
        for section in sections:
            if section.flags & _SHF_EXEC and section.flags & _SHF_WRITE:
                raise LinkError("a section that is both written and executed")
            section.address = at = _up(at, section.align)
            at += section.size
        return at

    def _relocate(self, r: _Relocation) -> None:
        place = r.section.address + r.offset
        if r.kind == _ABS64:
            self._relocate_address(r, place)
            return
        if r.kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
            target = self._table + self._entries[id(r.symbol)]
        elif r.kind in (_PC32, _PLT32, _PC64) and not r.symbol.absolute:
            if not r.symbol.is_external:
                target = r.symbol.address
            elif r.kind == _PLT32:
                target = self._jump_table + self._jumps[id(r.symbol)]
            else:
                raise LinkError(f"a relative address of the external {r.symbol.name!r}")
        else:
            raise LinkError(f"relocation of type {r.kind} against {r.symbol.name!r}")
        value = target + r.addend - place
        bits = 8 * _width(r)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise LinkError(f"{r.symbol.name!r} is out of reach")
        r.section.data[r.offset : r.offset + bits // 8] = value.to_bytes(bits // 8, "little", signed=True)

    def _relocate_address(self, r: _Relocation, place: int) -> None:
        if r.symbol.absolute:
            r.section.data[r.offset : r.offset + 8] = struct.pack("<q", r.symbol.value + r.addend)
            return
        if not r.section.flags & _SHF_WRITE:
            raise LinkError(f"the address of {r.symbol.name!r} in a read-only section")
        if r.symbol.is_external:
            self._dynamic_rela.append((place, self._number[id(r.symbol)] << 32 | _ABS64, r.addend))
        else:
            self._dynamic_rela.append((place, _RELATIVE, r.symbol.address + r.addend))

    def _fill_entries(self) -> None:
        self._table_bytes = bytearray(8 * len(self._entries))
        for key, offset in self._entries.items():
            symbol = self._entry_symbols[key]
            if symbol.is_external:
                self._dynamic_rela.append((self._table + offset, self._number[key] << 32 | _GLOB_DAT, 0))
            elif symbol.absolute:
                struct.pack_into("<Q", self._table_bytes, offset, symbol.value)
            else:
                self._dynamic_rela.append((self._table + offset, _RELATIVE, symbol.address))

    def _write(self) -> bytes:
        out = bytearray(self._file_end)
        dynamic = 16 * (len(self._needed) + 10)
        segments = (
            (_PT_LOAD, _READ, 0, self._read_end, self._read_end, PAGE),
            (_PT_LOAD, _READ | _EXECUTE, self._code, self._code_end - self._code, self._code_end - self._code, PAGE),
            (_PT_LOAD, _READ | _WRITE, self._data, self._file_end - self._data, self._data_end - self._data, PAGE),
            (_PT_DYNAMIC, _READ | _WRITE, self._dynamic_section, dynamic, dynamic, 8),
            (_PT_GNU_STACK, _READ | _WRITE, 0, 0, 0, 16),
        )
        count = len(segments)
        EHDR.pack_into(out, 0, IDENT, _ET_DYN, _EM_X86_64, 1, 0, EHDR.size, 0, 0, EHDR.size, PHDR.size, count, 0, 0, 0)
        for i, (kind, flags, offset, in_file, in_memory, align) in enumerate(segments):
            PHDR.pack_into(
                out, EHDR.size + i * PHDR.size, kind, flags, offset, offset, offset, in_file, in_memory, align
            )
        self._write_symbols(out)
        for i, rela in enumerate(self._dynamic_rela):
            _RELA.pack_into(out, self._rela + i * _RELA.size, *rela)
        out[self._strtab : self._strtab + len(self._strings)] = self._strings
        for section in self._object.sections:
            out[section.address : section.address + len(section.data)] = section.data
        for key, offset in self._jumps.items():
            at = self._jump_table + offset
            distance = self._table + self._entries[key] - (at + 6)
            out[at : at + 6] = _JUMP + struct.pack("<i", distance)
        out[self._table : self._table + len(self._table_bytes)] = self._table_bytes
        for i, pair in enumerate(self._dynamic_entries()):
            struct.pack_into("<QQ", out, self._dynamic_section + 16 * i, *pair)
        return bytes(out)

    def _write_symbols(self, out: bytearray) -> None:
        """Write the symbols and the loader's hash table, with one bucket per symbol."""
        buckets, chain = [0] * (len(self._dynamic) + 1), [0] * (len(self._dynamic) + 1)
        for i, (symbol, name) in enumerate(zip(self._dynamic, self._names, strict=True), 1):
            # Any section number but 0 means "defined"; the library has no section table.
            where = 0 if symbol.is_external else _SHN_ABS if symbol.absolute else 1
            address, size = (0, 0) if symbol.is_external else (symbol.address, symbol.size)
            SYM.pack_into(out, self._symtab + i * SYM.size, name, symbol.info, symbol.visibility, where, address, size)
            bucket = _hash(symbol.name) % len(buckets)
            chain[i], buckets[bucket] = buckets[bucket], i
        struct.pack_into(f"<{2 + 2 * len(buckets)}I", out, self._hash, len(buckets), len(chain), *buckets, *chain)

    def _dynamic_entries(self) -> list[tuple[int, int]]:
        return [
            *((_DT_NEEDED, name) for name in self._needed),
            (_DT_HASH, self._hash),
            (_DT_STRTAB, self._strtab),
            (_DT_SYMTAB, self._symtab),
            (_DT_STRSZ, len(self._strings)),
            (_DT_SYMENT, SYM.size),
            (_DT_RELA, self._rela),
            (_DT_RELASZ, _RELA.size * len(self._dynamic_rela)),
            (_DT_RELAENT, _RELA.size),
            (_DT_FLAGS, _BIND_NOW),
            (0, 0),
        ]


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _hash(name: bytes) -> int:
    """System V hash of a symbol name."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def main(arguments: Sequence[str]) -> int:
    """Run as `ld` of clang: -o OUT and one object; libraries and folders are ignored. Returns the exit status."""
    objects, target, rest = [], "a.out", iter(arguments)
    for argument in rest:
        if argument == "-o":
            target = next(rest, target)
        elif argument in ("-m", "-z", "-soname", "-h", "-dynamic-linker", "-plugin", "-rpath"):
            next(rest, None)
        elif not argument.startswith("-"):
            objects.append(argument)
    try:
        if len(objects) != 1:
            raise LinkError(f"{len(objects)} objects")
        with open(objects[0], "rb") as file:
            library = link(file.read())
        with open(target, "wb") as file:
            file.write(library)
        os.chmod(target, 0o755)
    except (LinkError, OSError) as e:
        print(f"{PROGRAM}: {', '.join(objects)}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
