"""WalledRun: a node's buffers between walls, which show accesses outside of them.

Walls are bytes of a pattern, NaN as floats: what is written there is found, and what is read there spoils the result.
On CPUs the walls can be closed, too: then an access ends the process, even if its value is not used.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ...cl.memory.sub_buffers import SubBufferBlock
from ...cl.runtime import Runtime
from ...errors import DeviceError
from ...plan.program import Slot, Storage
from ...run.execute.single_node_executable import PATTERN, NodeRun, logical_array
from ..case import Array

_WALL = 1 << 16  # bytes before and after a buffer; a multiple of the size of pages
# NaN in all types of floats: of inputs' walls, and of others'. What is computed of the ones differs from the others.
_BRICKS = np.array([[0xFFC1], [0xFFA7]], np.uint16)
_OPEN, _CLOSED = mmap.PROT_READ | mmap.PROT_WRITE, 0


class WalledRun:
    """A `NodeRun` whose buffers have walls. Images, whose accesses OpenCL bounds, are as they were."""

    def __init__(self, rt: Runtime, run: NodeRun) -> None:
        self._rt, self._run = rt, run
        executable = run.executable
        outputs = dict(zip(run.outputs, run.node.outputs, strict=True))
        self._walls: dict[int, _Wall] = {}  # by slot
        by_object: dict[int, _Wall] = {}
        for slot in executable.program.slots:
            memory = executable.memory.objects[slot.id]
            if slot.image is not None:
                continue
            if id(memory) not in by_object:
                nbytes = outputs[slot.id].type.nbytes if slot.id in outputs else slot.nbytes
                contents = None
                if slot.storage is Storage.STATIC:
                    rt.read(memory, contents := np.empty(nbytes, np.uint8))
                by_object[id(memory)] = _Wall(rt, nbytes, _describe(slot, slot.id in outputs), contents)
            self._walls[slot.id] = by_object[id(memory)]
        for launch in run.launches:
            found = (by_object.get(id(a)) for a in launch.arguments)
            args = [a if w is None else w.buffer for w, a in zip(found, launch.arguments, strict=True)]
            launch.update(args, launch.grid, launch.group)

    @property
    def can_close(self) -> bool:
        """Whether the walls can be closed: on CPUs that work on the host's memory."""
        return all(w.can_close for w in self._walls.values())

    def run(self) -> list[Array]:
        """The logical outputs. DeviceError if something was written outside of the outputs and scratch memory."""
        for wall in self._walls.values():
            wall.fill()
        self._rt.record(self._run.launches).run()
        self._rt.finish()
        for wall in self._walls.values():
            wall.check()
        results = self._run.results() if self._run.node.y.type.layout.is_image else []
        return [
            logical_array(self._walls[number].contents(), v) if number in self._walls else results[i]
            for i, (number, v) in enumerate(zip(self._run.outputs, self._run.node.outputs, strict=True))
        ]

    def run_closed(self) -> None:
        """Run once with closed walls: an access outside a buffer ends the process."""
        with _closed(list(self._walls.values())):
            self._rt.record(self._run.launches).run()
            self._rt.finish()


def _describe(slot: Slot, is_output: bool) -> str:
    kind = "output" if is_output else "input" if slot.storage is Storage.STATIC else "scratch memory"
    return f"{kind} {slot.label}".strip()


class _Wall:
    """A buffer whose end is that of its pages, as far as alignment allows, with a wall on either side.

    contents: of an input, which launches must not change.
    """

    def __init__(self, rt: Runtime, nbytes: int, label: str, contents: Array | None) -> None:
        self._rt, self.label, self._nbytes, self._given = rt, label, nbytes, contents
        align = max(rt.info.base_align, 64)
        room = -(-max(nbytes, 1) // align) * align
        pages = -(-room // mmap.PAGESIZE) * mmap.PAGESIZE
        self._start = _WALL + pages - room
        total = 2 * _WALL + pages
        self._pages = self._whole = None
        if rt.shares_memory and _mprotect is not None:
            self._pages = np.frombuffer(mmap.mmap(-1, total), np.uint8)
            self._whole = rt.allocator.wrapped(self._pages, writable=True)
        self.can_close = self._whole is not None
        self._total = total
        self._wall = np.tile(_BRICKS[int(contents is None)], total // 2).view(np.uint8)
        self._block = SubBufferBlock(rt.allocate(total) if self._whole is None else self._whole)
        self.buffer = rt.allocator.sub_buffer(self._block, self._start, nbytes)

    def fill(self) -> None:
        """Fill walls, outputs and scratch memory with the pattern, and inputs with their contents."""
        whole = self._wall.copy()
        whole[self._start : self._start + self._nbytes] = PATTERN if self._given is None else self._given
        self._rt.write(self._block.buffer, whole)

    def contents(self) -> Array:
        """The buffer's bytes."""
        return self._read(self._start, self._nbytes)

    def check(self) -> None:
        """DeviceError if a wall or an input has changed."""
        end = self._start + self._nbytes
        whole = self._read(0, self._total)
        wall = self._wall
        if np.any(whole[: self._start] != wall[: self._start]):
            raise DeviceError(f"something was written before the start of {self.label}")
        if np.any(whole[end:] != wall[end:]):
            raise DeviceError(f"something was written past the end of {self.label}")
        if self._given is not None and not np.array_equal(whole[self._start : end], self._given):
            raise DeviceError(
                f"{self.label} has changed, which other nodes may read: declare it as a pointer to const, and write "
                "to outputs only"
            )

    def _read(self, offset: int, nbytes: int) -> Array:
        found = np.empty(nbytes, np.uint8)
        self._rt.read(self._block.buffer, found, offset)
        return found

    def protect(self, access: int) -> None:
        """Open or close both walls."""
        assert self._pages is not None
        assert _mprotect is not None
        first = self._pages.ctypes.data
        for start in (first, first + self._total - _WALL):
            if _mprotect(ctypes.c_void_p(start), ctypes.c_size_t(_WALL), access):
                raise DeviceError("the system refuses to protect memory")


@contextmanager
def _closed(walls: list[_Wall]) -> Iterator[None]:
    try:
        for wall in walls:
            wall.protect(_CLOSED)
        yield
    finally:
        for wall in walls:
            wall.protect(_OPEN)


def _find_mprotect() -> Any:
    with suppress(OSError, AttributeError, TypeError):
        return ctypes.CDLL(None).mprotect
    return None  # Windows


_mprotect = _find_mprotect()
