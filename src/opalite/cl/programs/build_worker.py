"""A process that builds programs for another one (build_pool.py): PoCL compiles under one lock for a whole process.

    python -m opalite.cl.programs.build_worker PLATFORM:DEVICE VERSION

A request on standard input is REQUEST, options, source, or several of both with PART between them, to be linked. An
answer on standard output is ANSWER and a program binary, of no bytes where the build failed. The first answer tells
that the worker is ready: b"ready" if it found the device at that index with that version. The process ends with
the one that started it, whatever it is doing then, or when nobody has asked for IDLE_S.
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
_FIRST = "kernel void first(global int *x) { *x = 0; }"


def main(index: str, version: str) -> int:
    """Exit status 0; 1 if the device is not the one that was meant."""
    end_with_caller()
    answers = os.dup(1)
    os.dup2(2, 1)  # what drivers print must not get between answers
    try:
        device = CtypesDevice(*map(int, index.split(":")))
    except (CallError, IndexError, OSError, AttributeError):
        return 1
    if device.version.strip() != version:
        return 1
    if pocl.has_wrong_cpu_name(device.platform, device.version):
        pocl.fix_cpu_name(device.pointer, device.version)
    build(device, "", _FIRST)  # PoCL loads its kernel library, which takes as long as two programs
    _write(answers, READY)
    while (header := _read(REQUEST.size, IDLE_S)) is not None:
        sizes = REQUEST.unpack(header)
        options, text = (_read(size) for size in sizes)
        if options is None or text is None:
            break
        _write(answers, build(device, options.decode(), text.decode()))
    return 0


def end_with_caller() -> None:
    """End this process as soon as nobody holds the other end of standard input, even while the driver compiles."""

    def watch() -> None:
        caller = select.poll()
        caller.register(0, 0)  # the end of a pipe needs not be asked for
        while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in caller.poll()):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="opalite-caller", daemon=True).start()


def build(device: CtypesDevice, options: str, text: str) -> bytes:
    """The program's binary with every kernel compiled; b"" if it does not compile."""
    try:
        return (
            build_with_pruned_header(device.build, text, options, CallError)
            if PART not in text
            else link(device, options, text)
        )
    except CallError:
        return b""


def link(device: CtypesDevice, options: str, text: str) -> bytes:
    """The binary of the program of several sources. CallError if they do not compile."""
    with ExitStack() as held:
        sources = zip(text.split(PART), options.split(PART), strict=True)
        parts = [build_with_pruned_header(partial(device.compile, held), *source, CallError) for source in sources]
        return device.link(held, parts)


def _read(count: int, seconds: float | None = None) -> bytes | None:
    """`count` bytes of standard input; None at its end, or if none come for `seconds`."""
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
    except (BrokenPipeError, KeyboardInterrupt):  # the process that asked is gone
        sys.exit(1)
