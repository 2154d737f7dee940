"""Provides the `ld` that PoCL calls for every kernel; without an `ld` PoCL aborts the process.

PoCL's wheel has a compiler but no linker. Its clang calls `ld -shared kernel.o -lgcc -lgcc_s -lc`, which needs binutils
and a compiler's libraries. If the system lacks these, as slim images do, COMPILER_PATH (the folders that clang searches
first) points to elf_linker.py as `ld`.
"""

from __future__ import annotations

import _ctypes
import atexit
import ctypes
import glob
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from .. import knobs
from ..cache.temporary_folders import make_temporary
from ..errors import DeviceError
from . import process_limits
from .check_loadable import load_fault
from .elf_linker import EHDR, IDENT, SHDR, SYM

# Libraries that clang passes to `ld`, in Linux distributions.
_COMPILER_LIBRARY = ("/usr/lib/gcc/*/*/libgcc.a", "/usr/lib64/gcc/*/*/libgcc.a")
_C_LIBRARY = ("/usr/lib/*-linux-gnu/libc.so", "/usr/lib64/libc.so", "/usr/lib/libc.so")
_MAX_SHEBANG = 120  # bytes of a script's first line that every Linux kernel supports
_TIMEOUT_S = 30.0
_PROBE, _RETURN = "opalite_probe", b"\xc3"  # a function, and its code

_lock = threading.Lock()
_ready = False
_own_script: Path | None = None
_uses_own = False  # whether PoCL uses elf_linker.py


def prepare_linker() -> None:
    """Ensure that PoCL finds a working linker; takes milliseconds at the first call. Call this before PoCL compiles.

    Raises DeviceError if there is none. Rewrites Opalite's own linker if its file was removed.
    """
    global _ready
    if _ready and _own_script is not None and not _own_script.exists():
        try:
            _write(_own_script)  # removed by a cleanup of temporary files
        except OSError as e:
            raise DeviceError(
                f"Opalite's linker {_own_script} was removed and cannot be written again ({e.strerror})"
            ) from e
    if _ready or not is_needed():
        return
    with _lock:
        if not _ready:
            _find()
            _ready = True


def linker_in(folder: str) -> Mapping[str, str]:
    """Environment in which a child process's PoCL finds a linker, even after this process has ended.

    Writes Opalite's own linker into `folder` if the system's does not work. Raises OSError if that fails.
    """
    if not _uses_own:
        return {}
    put = Path(folder) / "linker"
    script = put / "ld"
    if not script.exists():
        _write(script)
    return {"COMPILER_PATH": ":".join(filter(None, (str(put), knobs.foreign("COMPILER_PATH"))))}


def is_needed() -> bool:
    """Return whether PoCL's wheel exists for this system; other installations of PoCL need no `ld`."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def system_linker() -> str | None:
    """Path of the system's `ld` if it works and has its libraries, tested by linking; else None."""
    found = shutil.which("ld")
    if found is None or not all(any(glob.glob(p) for p in each) for each in (_COMPILER_LIBRARY, _C_LIBRARY)):
        return None
    return found if _fault(found) is None else None


def _find() -> None:
    process_limits.check_files(process_limits.BUILD_FILES, "linking a kernel for PoCL")
    choice = knobs.get("OPALITE_LINKER")
    if choice != "own" and system_linker() is not None:
        return
    fault = "OPALITE_LINKER=system allows no other" if choice == "system" else _install_own()
    if fault is not None:
        raise DeviceError(
            f"PoCL, which runs kernels on the CPU, links each with `ld`, and no `ld` works here: {fault}. Install the "
            "system's (Debian, Ubuntu: `apt install gcc`; Fedora: `dnf install gcc`), or use another device"
        )


def _install_own() -> str | None:
    """Install elf_linker.py as clang's `ld`; returns the reason if that fails, else None."""
    global _uses_own, _own_script
    _uses_own = True
    if not sys.executable or getattr(sys, "frozen", False):
        return "Opalite's own needs a Python interpreter to run it"
    folder = make_temporary("opalite-ld-")
    atexit.register(_remove, folder, os.getpid())
    script = folder / "ld"
    try:
        _write(script)
    except OSError as e:
        return f"{script} cannot be written: {e.strerror}"
    _own_script = script
    fault = _fault(str(script))
    if fault is None:
        knobs.set_foreign("COMPILER_PATH", ":".join(filter(None, (str(folder), knobs.foreign("COMPILER_PATH")))))
    return fault


def _write(script: Path) -> None:
    """Write elf_linker.py's start script as `ld`."""
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    script.write_text(_script(sys.executable, Path(__file__).parent))
    script.chmod(0o700)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)


def _script(python: str, package: Path) -> str:
    """Script that runs elf_linker.py of the folder `package`, started in 15 ms as plain Python."""
    code = (
        f"import sys\nsys.path.append({str(package)!r})\nimport elf_linker\nsys.exit(elf_linker.main(sys.argv[1:]))\n"
    )
    if len(python) <= _MAX_SHEBANG and not any(c.isspace() for c in python):
        return f"#!{python} -IS\n{code}"
    quoted = python.replace("'", "'\\''")
    # The path is too long or has spaces for a first line: a shell starts Python, which ignores the second line.
    return f"#!/bin/sh\n'''exec' '{quoted}' -IS \"$0\" \"$@\"\n' '''\n{code}"


def _fault(program: str) -> str | None:
    """Reason why `program` fails to link a library that this system loads; None if linking works."""
    try:
        folder = make_temporary("opalite-probe-")
    except DeviceError as e:
        return str(e)
    try:
        return _link_and_load(program, folder)
    except OSError as e:
        return f"{folder} cannot be written: {e.strerror or e}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _link_and_load(program: str, folder: Path) -> str | None:
    source, library = folder / "probe.o", folder / "probe.so"
    source.write_bytes(make_object())
    command = [program, "-shared", "-o", str(library), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as e:
        return f"{program} cannot be started ({getattr(e, 'strerror', None) or e})"
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode != 0 or not library.exists():
        return f"{program} fails ({said.splitlines()[-1] if said else f'status {done.returncode}'})"
    fault = load_fault(library.read_bytes())
    if fault is None:
        try:
            loaded = ctypes.CDLL(str(library))
            if not hasattr(loaded, _PROBE):
                fault = f"it lacks {_PROBE}"
            _ctypes.dlclose(loaded._handle)
        except OSError as e:
            fault = str(e)
    return f"the output of {program} cannot be loaded ({fault})" if fault is not None else None


def make_object() -> bytes:
    """A minimal x86-64 relocatable object with one empty function, `_PROBE`."""
    text, strings_number = 1, 4  # numbers of sections
    strings = f"\0{_PROBE}\0".encode()
    symbols = SYM.pack(0, 0, 0, 0, 0, 0) + SYM.pack(1, 0x12, 0, text, 0, len(_RETURN))
    # Name, type, flags, contents, link, info, alignment, size of an entry.
    sections: list[tuple[str, int, int, bytes, int, int, int, int]] = [
        ("", 0, 0, b"", 0, 0, 0, 0),
        (".text", 1, 6, _RETURN, 0, 0, 16, 0),
        (".note.GNU-stack", 1, 0, b"", 0, 0, 1, 0),
        (".symtab", 2, 0, symbols, strings_number, 1, 8, SYM.size),
        (".strtab", 3, 0, strings, 0, 0, 1, 0),
    ]
    names = b"\0".join(name.encode() for name, *_ in sections) + b"\0.shstrtab\0"
    sections.append((".shstrtab", 3, 0, names, 0, 0, 1, 0))
    body, headers = bytearray(EHDR.size), b""
    for name, kind, flags, contents, link, info, align, entry in sections:
        body += bytes(-len(body) % max(align, 1))
        at = names.index(f"{name}\0".encode())
        headers += SHDR.pack(at, kind, flags, 0, len(body), len(contents), link, info, align, entry)
        body += contents
    body += bytes(-len(body) % 8)
    counts = (EHDR.size, 0, 0, SHDR.size, len(sections), len(sections) - 1)
    body[: EHDR.size] = EHDR.pack(IDENT, 1, 62, 1, 0, 0, len(body), 0, *counts)
    return bytes(body) + headers
