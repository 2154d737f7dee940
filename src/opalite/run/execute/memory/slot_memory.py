"""SlotMemory: device memory for a Program's slots: constants, inputs and outputs, and intermediates.

Intermediates share one arena, or whole buffers from a pool on drivers with slow sub-buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cached_property
from typing import Any, TypeVar

from ....cl.memory.buffer_pool import BufferPool
from ....cl.memory.shared_weights import SharedWeight
from ....cl.memory.staging_buffer import StagingBuffer
from ....cl.runtime import Runtime
from ....errors import DeviceMemoryError
from ....ir.constants.lazy_array import ContentInfo, LazyArray
from ....ir.device.device_family import SLOW_SUB_BUFFERS
from ....ir.dtype import DType
from ....plan.program import DownloadStep, LaunchStep, Program, Slot, SlotArg, Step, Storage, UploadStep

M = TypeVar("M")
EXACT = 1.0
GROWTH = 1.25
"""Factors of what a program needs: of the first layout, and of later ones."""
WASTE_FACTOR = 4
MIN_WASTE_BYTES = 16 << 20
WASTE_RUNS = 64
"""Memory is laid out anew if WASTE_RUNS programs in succession need less than a WASTE_FACTOR-th of it, and it has at
least MIN_WASTE_BYTES."""


class SlotMemory:
    """Memory for the programs of one plan, one shape after another; all of them share the weights.

    The first program gets exactly what it needs. When another program needs more, all memory is laid out anew, GROWTH
    times as large, so that neighbouring sizes fit. When many programs in succession need far less, it is laid out for
    them.

    current: the slots of the program that was placed last. weight_bytes: by identity of the buffer, which other
    programs may share.
    """

    def __init__(self, rt: Runtime, program: Program) -> None:
        """Upload the weights and allocate. DeviceMemoryError if memory is short."""
        self._rt = rt
        self.weights: list[SharedWeight] = []  # keeps constants alive
        self._known: list[ContentInfo] = []  # by which the next plan finds the constants
        self.weight_bytes: dict[int, int] = {}
        self._constants: dict[int, Any] = {}
        for slot in program.slots:
            if slot.storage is Storage.STATIC:
                array, key = program.weights[slot.id], program.weight_keys.get(slot.id)
                weight = rt.share_weight(array, image=slot.image is not None, key=key)
                self.weights.append(weight)
                if isinstance(array, LazyArray):
                    self._known.append(array.contents)
                self._constants[slot.id] = weight.memory
                self.weight_bytes[id(weight.memory)] = slot.nbytes
        self._buffers = [self._constants[s.id] for s in program.slots if s.id in self._constants and s.image is None]
        self._small = 0  # programs in succession that waste memory
        self._layout: Layout | None = Layout(rt, program, self._constants)
        self.current = Placed(self._layout, program)

    def make_replica(self, program: Program) -> SlotMemory:
        """Other memory for programs of the same plan, `program` first, with the same weights.

        It is laid out alike where `program` fits, because linked kernels contain offsets.
        """
        other = copy(self)
        other._constants, other._buffers = dict(self._constants), list(self._buffers)
        other.weights, other.weight_bytes, other._small = list(self.weights), dict(self.weight_bytes), 0
        own = self._layout
        like = (program, GROWTH) if own is None or not own.holds(program) else (own.program, own.growth)
        other._layout = Layout(self._rt, like[0], self._constants, like[1])
        other.current = Placed(other._layout, program, other._tables(program))
        return other

    def release(self) -> None:
        """Free everything. No program may use it afterwards."""
        self.weights.clear()
        self._known = []
        self.weight_bytes.clear()
        self._constants.clear()
        self._buffers.clear()
        self.current = self._layout = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        """Bytes, without weights."""
        return 0 if self._layout is None else self._layout.nbytes

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes without weights, by kind: 'arena' (or separate buffers), 'images', 'inputs_outputs'."""
        layout = self._layout
        if layout is None:
            return {}
        io = sum(c.nbytes for slot, c in layout.staging_buffers.items() if slot not in layout.constants)
        images = sum(4 * w * h * dtype.size for w, h, dtype, _ in layout.images)
        return {"arena": layout.nbytes - io, "images": images, "inputs_outputs": io}

    @property
    def constants(self) -> list[Any]:
        """The buffers of the weights."""
        return self._buffers

    @property
    def objects(self) -> dict[int, Any]:
        """Memory objects by slot of the program that was placed last."""
        return self.current.objects

    def place(
        self, program: Program, before_relayout: Callable[[], None], own: Mapping[int, Any] | None = None
    ) -> Placed:
        """Assign memory to the slots of `program`, another one of the same plan. DeviceMemoryError if memory is short.

        before_relayout: called before memory is laid out anew; drops references to the old layout. own: memory of
        constants that depend on sizes, by slot, if the caller fills it.
        """
        if self._layout is not None and self._layout.holds(program):
            self._small = self._small + 1 if self._layout.wastes(program) else 0
            if self._small < WASTE_RUNS:
                self.current = Placed(self._layout, program, self._tables(program, own))
                return self.current
        self._small = 0
        before_relayout()
        self.current = self._layout = None  # type: ignore[assignment]
        try:
            self._layout = Layout(self._rt, program, self._constants, GROWTH)
        except DeviceMemoryError:
            self._layout = Layout(self._rt, program, self._constants)
        self.current = Placed(self._layout, program, self._tables(program, own))
        return self.current

    def _tables(self, program: Program, own: Mapping[int, Any] | None = None) -> dict[int, Any]:
        """The constants of a program that depend on its sizes."""
        share, keys, slots, made = self._rt.share_weight, program.weight_keys, program.slots, own or {}
        brought = {n: a for n, a in program.weights.items() if n not in made}
        found = {n: share(a, image=slots[n].image is not None, key=keys.get(n)).memory for n, a in brought.items()}
        return found | dict(made)


class Layout:
    """Memory for the slots of the programs of one plan, up to some size, without constants."""

    def __init__(self, rt: Runtime, program: Program, constants: Mapping[int, Any], growth: float = EXACT) -> None:
        """Allocate `growth` times the memory that `program` needs. DeviceMemoryError if the device is full."""
        self.program, self.growth, self.constants = program, growth, constants
        self.placeholder = rt.allocate(1) if program.reserved else None  # of state
        whole = SLOW_SUB_BUFFERS in rt.info.quirks
        pool = BufferPool(lambda nbytes: rt.allocate(int(nbytes * growth)))
        self.buffers: dict[int, Any] = pool_slots(program, pool) if whole else {}
        self.nbytes = pool.total_bytes
        roots = [s for s in program.slots if _is_pooled(s) and s.within < 0 and s.id not in self.buffers]
        self.regions = {s.id: _widened(s.offset, s.nbytes, max(rt.info.base_align, 64), growth) for s in roots}
        self.arena = rt.make_arena(list(self.regions.values())) if roots else None
        self.nbytes += self.arena.nbytes if self.arena is not None else 0
        limits = rt.info.image2d_max
        self.images: list[tuple[int, int, DType, Any]] = []
        for w, h, dtype in program.image_pool:
            wide, high = (max(n, min(int(n * growth), most)) for n, most in zip((w, h), limits, strict=True))
            self.images.append((wide, high, dtype, rt.make_image(wide, high, dtype)))
        self.staging_buffers: dict[int, StagingBuffer] = {}
        for slot in program.slots:
            if slot.storage is Storage.SEPARATE and slot.image is None:
                self.staging_buffers[slot.id] = StagingBuffer(rt, int(slot.nbytes * growth))
        sizes = {s.id: s.nbytes for s in program.slots}
        for step in program.steps:
            if isinstance(step, DownloadStep) and step.slot not in self.staging_buffers:  # a weight
                self.staging_buffers[step.slot] = StagingBuffer(rt, sizes[step.slot], constants[step.slot])
        self.nbytes += sum(c.nbytes for slot, c in self.staging_buffers.items() if slot not in constants)
        self.make_texels, self.texels = rt.allocator.texels, dict[int, Any]()  # images over constants, by slot
        self._most_cuts = 8 * len(program.slots) + 256

    def holds(self, program: Program) -> bool:
        """Whether the slots of `program` fit."""
        if self.arena is not None and self.arena.sub_buffer_count > self._most_cuts:
            return False  # sub-buffers live as long as their arena, so their number is limited
        for slot in program.slots:
            if slot.storage in (Storage.STATIC, Storage.RESERVED) or slot.image is not None:
                continue
            if slot.id in self.staging_buffers:
                if slot.nbytes > self.staging_buffers[slot.id].nbytes:
                    return False
            elif slot.id in self.buffers:
                if slot.nbytes > self.buffers[slot.id].size:
                    return False
            elif slot.within < 0 and slot.nbytes > self.regions[slot.id][1]:
                return False
        return len(program.image_pool) == len(self.images) and all(
            w <= wide and h <= high and dtype is kind
            for (w, h, dtype), (wide, high, kind, _) in zip(program.image_pool, self.images, strict=True)
        )

    def wastes(self, program: Program) -> bool:
        """Whether `program` needs only a small part of the memory."""
        if self.nbytes < MIN_WASTE_BYTES:
            return False
        texels = sum(w * h for w, h, _ in program.image_pool)
        separate = sum(s.nbytes for s in program.slots if s.id in self.staging_buffers)
        return WASTE_FACTOR * (program.arena_bytes + separate + 16 * texels) < self.nbytes + 16 * sum(
            wide * high for wide, high, _, _ in self.images
        )


class Placed:
    """The memory of one program's slots in a layout. Invalid after the next layout.

    tables: constants of this program alone. State has a placeholder: its buffers are bound.
    """

    def __init__(self, layout: Layout, program: Program, tables: Mapping[int, Any] | None = None) -> None:
        self._layout = layout
        self._program = program
        self._tables = tables or {}
        self.staging_buffers = layout.staging_buffers

    @cached_property
    def objects(self) -> dict[int, Any]:
        """Memory objects by slot. Most sub-buffers are those of the previous shape."""
        layout, found = self._layout, dict[int, Any]()
        for slot in self._program.slots:
            if slot.storage is Storage.STATIC:
                found[slot.id] = self._constant(slot.id)
            elif slot.storage is Storage.RESERVED:
                found[slot.id] = layout.placeholder
            elif slot.image is not None:
                found[slot.id] = layout.images[slot.image_slot][3]
            elif slot.id in layout.staging_buffers:
                found[slot.id] = layout.staging_buffers[slot.id].buffer
            elif slot.id in layout.buffers:
                found[slot.id] = layout.buffers[slot.id]
            else:
                assert layout.arena is not None
                found[slot.id] = layout.arena.region(*self._region(slot))
        return found

    def texels(self, number: int) -> Any:
        """An image over the buffer of a constant's slot, made once for a layout."""
        made = self._layout.texels
        if number not in made:
            made[number] = self._layout.make_texels(self._constant(number), self._program.slots[number].nbytes)
        return made[number]

    def locate(self, slot: Slot) -> tuple[Any, int]:
        """The memory object that contains a slot, and the byte at which the slot begins."""
        layout = self._layout
        if slot.storage is Storage.STATIC:
            return self._constant(slot.id), 0
        if slot.storage is Storage.RESERVED:
            return layout.placeholder, 0
        if slot.id in layout.staging_buffers:
            return layout.staging_buffers[slot.id].buffer, 0
        if slot.id in layout.buffers:
            return layout.buffers[slot.id], 0
        assert layout.arena is not None
        return layout.arena.locate(*self._region(slot))

    def _constant(self, number: int) -> Any:
        own = self._tables.get(number)
        return self._layout.constants[number] if own is None else own

    def _region(self, slot: Slot) -> tuple[int, int]:
        """Offset and size of a slot in the arena, in bytes."""
        if slot.within < 0:
            return self._layout.regions[slot.id]
        holder = self._program.slots[slot.within]
        start, _ = self._layout.regions[holder.id]
        return start + slot.offset - holder.offset, slot.nbytes


def _is_pooled(slot: Slot) -> bool:
    return slot.storage is Storage.DYNAMIC and slot.image is None


def _widened(offset: int, nbytes: int, alignment: int, growth: float) -> tuple[int, int]:
    """The region in an arena that is `growth` times as large: disjoint regions stay disjoint."""
    if growth == EXACT:
        return offset, nbytes
    start = alignment * int(offset // alignment * growth)
    return start, alignment * int(-(-(offset + nbytes) // alignment) * growth) - start


def slot_lives(program: Program) -> dict[int, tuple[int, int]]:
    """The first and the last step that use each slot, or a part of it."""
    holders = {s.id: s.within for s in program.slots if s.within >= 0}
    lives: dict[int, tuple[int, int]] = {}
    for i, step in enumerate(program.steps):
        for slot in _slots_of(step):
            for number in (slot, holders.get(slot, slot)):
                lives[number] = (lives.get(number, (i, i))[0], i)
    return lives


def pool_slots(program: Program, pool: BufferPool[M]) -> dict[int, M]:
    """A buffer for each DYNAMIC slot without an image, reused after the last step that uses the slot.

    Slots that contain others, or are contained in others, are left out: they need an arena.
    """
    nested = {n for s in program.slots if s.within >= 0 for n in (s.id, s.within)}
    dynamic = {
        s.id: s.nbytes for s in program.slots if s.storage is Storage.DYNAMIC and s.image is None and s.id not in nested
    }
    last: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        last |= dict.fromkeys(_slots_of(step), i)
    found: dict[int, M] = {}
    for i, step in enumerate(program.steps):
        used = [s for s in dict.fromkeys(_slots_of(step)) if s in dynamic]
        for slot in used:
            if slot not in found:
                found[slot] = pool.acquire(dynamic[slot])
        for slot in used:
            if last[slot] == i:
                pool.release(found[slot])
    for slot, nbytes in dynamic.items():
        if slot not in found:  # no step touches it
            found[slot] = pool.acquire(nbytes)
    return found


def _slots_of(step: Step) -> Iterator[int]:
    if isinstance(step, LaunchStep):
        yield from (a.slot for a in step.args if isinstance(a, SlotArg))
    elif isinstance(step, UploadStep | DownloadStep):
        yield step.slot
