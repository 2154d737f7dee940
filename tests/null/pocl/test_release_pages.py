"""Which mappings of a process are pages as they lie in the driver's files."""

from __future__ import annotations

from opalite.pocl.release_pages import unchanged_mappings

SMAPS = """\
7f0000000000-7f0000100000 r--p 00000000 08:01 11 {library}
Size:               1024 kB
Rss:                 900 kB
Pss:                 100 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
7f0000100000-7f0000500000 r-xp 00100000 08:01 11 {library}
Rss:                4096 kB
Anonymous:             4 kB
Swap:                  0 kB
7f0000500000-7f0000600000 r-xp 00500000 08:01 11 {library}
Rss:                 300 kB
Anonymous:             0 kB
Swap:                  0 kB
7f0000600000-7f0000610000 r--p 00600000 08:01 11 {library}
Rss:                  64 kB
Anonymous:             0 kB
Swap:                  8 kB
7f0000610000-7f0000700000 rw-p 00600000 08:01 11 {library}
Rss:                1024 kB
Anonymous:             0 kB
Swap:                  0 kB
7f0000700000-7f0000800000 r--p 00700000 08:01 11 {library}
Rss:                  32 kB
Anonymous:             0 kB
Swap:                  0 kB
7f0000800000-7f0000900000 r--s 00800000 08:01 11 {library}
Rss:                1024 kB
Anonymous:             0 kB
Swap:                  0 kB
7f0000900000-7f0000a00000 r--p 00000000 00:00 0
Rss:                1024 kB
Anonymous:             0 kB
Swap:                  0 kB
7f0000a00000-7f0000b00000 r-xp 00000000 08:01 12 /usr/lib/x86_64-linux-gnu/libc.so.6
Rss:                1024 kB
Anonymous:             0 kB
Swap:                  0 kB
"""


def test_only_what_is_unchanged_of_the_drivers_libraries_is_given_back() -> None:
    first, third = (0x7F0000000000, 0x7F0000100000, 900 << 10), (0x7F0000500000, 0x7F0000600000, 300 << 10)
    for library in ("/opt/a b/libpocl-21062cec.so", "/usr/lib/libLLVM-14.so.1", "/libclang-cpp.so.14"):
        assert unchanged_mappings(SMAPS.format(library=library)) == [first, third], library
    assert unchanged_mappings(SMAPS.format(library="/home/libpocl/data.bin")) == []
    assert unchanged_mappings("") == []
