"""Program: everything a session needs to run, as plain data. Neither onnx nor a pass is needed to run one.

Slots name memory. Device slots are regions of the arena, memory objects of their own (static weights; dynamic-separate,
MNN's third storage kind) or images; host slots are arrays. Steps run in order and refer to slots by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.constants.lazy_array import LazyArray
from ..ir.dtype import DType

if TYPE_CHECKING:
    from ..ops.operator import Op


class Storage(Enum):
    """How a device slot gets its memory: MNN's STATIC, DYNAMIC and DYNAMIC_SEPARATE."""

    STATIC = "static"  # weights: uploaded once, shared by sessions of one model
    DYNAMIC = "dynamic"  # a region of the arena, reused when its value is dead
    SEPARATE = "separate"  # a memory object of its own: graph inputs and outputs that the caller may bind
    RESERVED = "reserved"  # lasts from run to run; whoever runs the program says where it is


@dataclass(frozen=True)
class Slot:
    """One device memory region: `offset` in the arena if DYNAMIC, `image` (width, height) in texels for images.

    within: the slot whose memory this one is a part of; -1 if it has its own.
    """

    id: int
    nbytes: int
    storage: Storage
    offset: int = 0
    image: tuple[int, int] | None = None
    image_dtype: DType = DType.FLOAT32
    image_slot: int = 0  # which image of the pool, for DYNAMIC images
    label: str = ""
    within: int = -1


@dataclass(frozen=True)
class Port:
    """A graph input or output: name, dtype, shape, and the host slot its array arrives in or leaves from."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    host: int


@dataclass(frozen=True)
class ReservedPort:
    """Memory that lasts from run to run: the name of the input that it is, its slot, and how it is stored."""

    name: str
    slot: int
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SlotArg:
    """Kernel argument: the memory of a device slot."""

    slot: int


@dataclass(frozen=True)
class ScalarArg:
    """Kernel argument: a number, already of its NumPy type."""

    value: np.generic


@dataclass(frozen=True)
class LocalArg:
    """Kernel argument: local memory of `nbytes`."""

    nbytes: int


StepArg = SlotArg | ScalarArg | LocalArg


@dataclass(frozen=True)
class SourceSpec:
    """One OpenCL program to build: full text and options. Equal specs are built once."""

    text: str
    options: str
    name: str = ""  # file the text came from, for messages

    @property
    def parts(self) -> tuple[str, str, str]:
        """Text, options and name, as what builds programs takes them."""
        return self.text, self.options, self.name


@dataclass(frozen=True)
class LaunchStep:
    """Enqueue `entry` of source number `source`. `grid` is already a multiple of `group`, if there is one.

    open_group: the kernel runs with any work-group, so that one too large for its registers may shrink.
    walk: launches of one walk give the same parts of their results, which are of one shape, to work-groups of the same
        number; -1 where that is not known.
    own: arguments, by number, of which a work-group reads or writes the part that is its own; the result is the first.
    """

    source: int
    entry: str
    args: tuple[StepArg, ...]
    grid: tuple[int, ...]
    group: tuple[int, ...] | None
    node: str = ""
    kernel: str = ""
    flops: float = 0.0
    nbytes: float = 0.0
    open_group: bool = False
    walk: int = -1
    own: tuple[int, ...] = ()


@dataclass(frozen=True)
class UploadStep:
    """Copy host slot to device slot (a buffer), storing as `dtype`."""

    host: int
    slot: int
    dtype: DType
    node: str = ""


@dataclass(frozen=True)
class DownloadStep:
    """Copy device slot (a flat buffer) to a new array of `shape` and `dtype` in a host slot."""

    slot: int
    host: int
    dtype: DType
    shape: tuple[int, ...]
    node: str = ""


@dataclass(frozen=True)
class HostStep:
    """Run one ONNX operator on the host. `proto` is the serialised NodeProto, `opset` its domain's version."""

    op_type: str
    domain: str
    opset: int
    proto: bytes
    inputs: tuple[int, ...]  # host slots; -1 where an optional input is absent
    outputs: tuple[int, ...]
    node: str = ""


@dataclass(frozen=True)
class ReferenceStep:
    """Run a canonical operator's NumPy reference on the host: the device has no kernel for its types."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    node: str = ""


Step = LaunchStep | UploadStep | DownloadStep | HostStep | ReferenceStep


@dataclass
class MemoryReport:
    """Arena totals by strategy beside the lower bound (most bytes alive at once), in bytes."""

    chosen: str = ""
    totals: dict[str, int] = field(default_factory=dict)
    lower_bound: int = 0
    static: int = 0
    separate: int = 0
    images: int = 0  # of the image pool, apart from the arena
    nested: int = 0  # tensors that lie inside others; a number, not bytes


@dataclass(frozen=True)
class TuningRecord:
    """What planning may have asked the tuning database, and what it said (tune/plan_dependencies.py).

    graph, nodes: signatures. stamp: of the database's file then. answers: digest of what it holds on these.
    """

    graph: str
    nodes: tuple[str, ...]
    stamp: str
    answers: str


@dataclass(eq=False)
class Program:
    """A compiled model (or segment) for one set of input shapes on one device."""

    name: str
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    arena_bytes: int = 0
    image_pool: list[tuple[int, int, DType]] = field(default_factory=list)  # width, height, channel type of each image
    weights: dict[int, np.ndarray[Any, Any] | LazyArray] = field(default_factory=dict)  # STATIC slot -> contents
    host_consts: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)  # host slot -> constant array
    host_slots: int = 0
    sources: list[SourceSpec] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    memory: MemoryReport = field(default_factory=MemoryReport)
    placement: Sequence[Any] = ()  # NodeReport records for explain()
    stores_halves: bool = False  # whether a computed value is kept in halves, which may not hold it
    tuning: TuningRecord | None = None  # what it was planned by; None where nobody may want to know
    reserved: list[ReservedPort] = field(default_factory=list)
    weight_keys: dict[int, str] = field(default_factory=dict)  # content keys of weights, where they are known
