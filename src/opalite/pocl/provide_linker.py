"""The `ld` that PoCL calls for every kernel it compiles; without one it aborts the process.

PoCL's wheel brings a compiler and no linker. Its clang calls `ld -shared kernel.o -lgcc -lgcc_s -lc`, which needs a
compiler's files besides binutils. Where a system lacks any of that, as slim images do, clang is led to an `ld`
of our own (elf_linker.py) by COMPILER_PATH, the list of folders in which it looks for programs first.
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
from .probe_elf_object import NAME, make_object

# Where Linux distributions have what clang tells `ld` to link with.
_COMPILER_LIBRARY = ("/usr/lib/gcc/*/*/libgcc.a", "/usr/lib64/gcc/*/*/libgcc.a")
_C_LIBRARY = ("/usr/lib/*-linux-gnu/libc.so", "/usr/lib64/libc.so", "/usr/lib/libc.so")
_LONGEST = 120  # bytes of a script's first line that every kernel of the system reads
_PATIENCE_S = 30.0

_lock = threading.Lock()
_ready = False
_own_script: Path | None = None
_own = False  # whether it is elf_linker.py, in a folder of this process's


def prepare_linker() -> None:
    """See to it that PoCL finds a linker that works. To be called before it compiles; costs milliseconds once.

    DeviceError if there is none: PoCL must not compile then. Opalite's own, if it has gone since, is written anew.
    """
    global _ready
    if _ready and _own_script is not None and not _own_script.exists():
        try:
            _write(_own_script)  # whoever tidies temporary folders has removed it
        except OSError as e:
            raise DeviceError(
                f"Opalite's linker {_own_script} has gone, and cannot be written anew ({e.strerror})"
            ) from e
    if _ready or not is_needed():
        return
    with _lock:
        if not _ready:
            _find()
            _ready = True


def linker_in(folder: str) -> Mapping[str, str]:
    """Settings by which another process's PoCL finds a linker, also after this one has ended: Opalite's own, if the
    system's is of no use, as a file in `folder`. OSError if that cannot be written."""
    if not _own:
        return {}
    put = Path(folder) / "linker"
    script = put / "ld"
    if not script.exists():
        _write(script)
    return {"COMPILER_PATH": ":".join(filter(None, (str(put), knobs.foreign("COMPILER_PATH"))))}


def is_needed() -> bool:
    """Whether this is a system for which PoCL's wheel is made, the only PoCL known to need an `ld`."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def system_linker() -> str | None:
    """The system's `ld`, if it works and has all that clang tells it to link with; costs a process that links."""
    found = shutil.which("ld")
    if found is None or not all(any(glob.glob(p) for p in each) for each in (_COMPILER_LIBRARY, _C_LIBRARY)):
        return None
    return found if _fault(found) is None else None


def _find() -> None:
    process_limits.check_files(process_limits.BUILD_FILES, "linking a kernel for PoCL")
    choice = knobs.get("OPALITE_LINKER")
    if choice != "own" and system_linker() is not None:
        return
    fault = "OPALITE_LINKER=system takes no other" if choice == "system" else _put_own()
    if fault is not None:
        raise DeviceError(
            f"PoCL, which runs kernels on the CPU, links each with `ld`, and no `ld` works here: {fault}. Install the "
            "system's (Debian, Ubuntu: `apt install gcc`; Fedora: `dnf install gcc`), or use another device"
        )


def _put_own() -> str | None:
    """Put elf_linker.py where clang looks for `ld`; returns why that is not possible, or None."""
    global _own, _own_script
    _own = True
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
    """Write Opalite's own `ld`."""
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    script.write_text(_script(sys.executable, Path(__file__).parent))
    script.chmod(0o700)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a process forked from that one ends earlier
        shutil.rmtree(folder, ignore_errors=True)


def _script(python: str, package: Path) -> str:
    """A program that runs elf_linker.py of the folder `package`, and starts in the 15 ms that Python alone needs."""
    code = (
        f"import sys\nsys.path.append({str(package)!r})\nimport elf_linker\nsys.exit(elf_linker.main(sys.argv[1:]))\n"
    )
    if len(python) <= _LONGEST and not any(c.isspace() for c in python):
        return f"#!{python} -IS\n{code}"
    quoted = python.replace("'", "'\\''")
    # The system reads a shorter first line, without spaces: a shell starts Python, which skips that line.
    return f"#!/bin/sh\n'''exec' '{quoted}' -IS \"$0\" \"$@\"\n' '''\n{code}"


def _fault(program: str) -> str | None:
    """Why `program` does not link, or why this system's loader refuses what it links; None if all is well."""
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
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.SubprocessError) as e:
        return f"{program} cannot be started ({getattr(e, 'strerror', None) or e})"
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode != 0 or not library.exists():
        return f"{program} fails ({said.splitlines()[-1] if said else f'status {done.returncode}'})"
    fault = load_fault(library.read_bytes())
    if fault is None:
        try:
            loaded = ctypes.CDLL(str(library))
            if not hasattr(loaded, NAME):
                fault = f"it lacks {NAME}"
            _ctypes.dlclose(loaded._handle)
        except OSError as e:
            fault = str(e)
    return f"what {program} links cannot be loaded ({fault})" if fault is not None else None
