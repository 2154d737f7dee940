"""Build worker process: compiles programs for build_pool.py, because PoCL compiles one at a time in a process.

    python -m opalite.cl.programs.build_worker PLATFORM:DEVICE VERSION

A request on standard input is REQUEST, options, source. Several sources and options, with PART between them, are
linked into one program. An answer on standard output is ANSWER and the program binary, empty if the build failed. The
first answer is READY, once the worker has opened the device at that index with that version. The process ends with its
parent, even in the middle of a build, and after IDLE_S without requests.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import threading
from contextlib import ExitStack
from functools import partial

from ...pocl import cpu_workarounds as pocl
from ...pocl.prune_header import build_with_pruned_header
from .ctypes_compiler import CallError, CtypesDevice

REQUEST = struct.Struct("<II")  # bytes of options and of source
ANSWER = struct.Struct("<I")  # bytes of the binary
READY = b"ready"
PART = "\0"  # between the sources, and their options, of a program that is linked from several
IDLE_S = 10.0
_WARM_UP = "kernel void first(global int *x) { *x = 0; }"


def main(index: str, version: str) -> int:
    """Serve requests; returns the exit status: 0, or 1 if the device is missing or has another version."""
    exit_with_parent()
    answers = os.dup(1)
    os.dup2(2, 1)  # drivers print to stdout, which would corrupt the answers
    try:
        device = CtypesDevice(*map(int, index.split(":")))
    except (CallError, IndexError, OSError, AttributeError):
        return 1
    if device.version.strip() != version:
        return 1
    if pocl.has_wrong_cpu_name(device.platform, device.version):
        pocl.fix_cpu_name(device.pointer, device.version)
    build(device, "", _WARM_UP)  # makes PoCL load its kernel library, which takes as long as two builds
    _write(answers, READY)
    while (header := _read(REQUEST.size, IDLE_S)) is not None:
        sizes = REQUEST.unpack(header)
        options, text = (_read(size) for size in sizes)
        if options is None or text is None:
            break
        _write(answers, build(device, options.decode(), text.decode()))
    return 0


def exit_with_parent() -> None:
    """End this process when its parent closes standard input or dies, even while the driver compiles."""

    def watch() -> None:
        parent = select.poll()
        parent.register(0, 0)  # poll always reports a hang-up
        while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in parent.poll()):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="opalite-parent", daemon=True).start()


def build(device: CtypesDevice, options: str, text: str) -> bytes:
    """Compile a program; returns its binary, b"" if it does not compile."""
    try:
        return (
            build_with_pruned_header(device.build, text, options, CallError)
            if PART not in text
            else link(device, options, text)
        )
    except CallError:
        return b""


def link(device: CtypesDevice, options: str, text: str) -> bytes:
    """Compile several sources and link them; returns the binary. Raises CallError if that fails."""
    with ExitStack() as stack:
        sources = zip(text.split(PART), options.split(PART), strict=True)
        parts = [build_with_pruned_header(partial(device.compile, stack), *source, CallError) for source in sources]
        return device.link(stack, parts)


def _read(count: int, seconds: float | None = None) -> bytes | None:
    """Read `count` bytes of standard input; None at the end of input or after `seconds` without input."""
    found = bytearray()
    while len(found) < count:
        if not select.select([0], [], [], seconds)[0]:
            return None
        part = os.read(0, count - len(found))
        if not part:
            return None
        found += part
    return bytes(found)


def _write(descriptor: int, answer: bytes) -> None:
    rest = memoryview(ANSWER.pack(len(answer)) + answer)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):  # the parent is gone
        sys.exit(1)
