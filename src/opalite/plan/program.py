"""Program: a compiled model as plain data, which runs without onnx and without passes.

Slots name memory. Device slots are regions of the arena, memory objects of their own (static weights, MNN's
dynamic-separate storage) or images; host slots are arrays. Steps run in order and refer to slots by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.constants.lazy_array import LazyArray
from ..ir.dtype import DType
from ..lazy_dataclass import dataclass

if TYPE_CHECKING:
    from ..ops.operator import Op


class Storage(Enum):
    """Kinds of memory of a device slot: MNN's STATIC, DYNAMIC and DYNAMIC_SEPARATE."""

    STATIC = "static"  # weights: uploaded once, shared by sessions of one model
    DYNAMIC = "dynamic"  # a region of the arena, reused after the value's last use
    SEPARATE = "separate"  # a memory object of its own: graph inputs and outputs, bindable by the caller
    RESERVED = "reserved"  # persistent memory that the caller of the program provides


@dataclass(frozen=True)
class Slot:
    """One device memory region: `offset` in the arena if DYNAMIC, `image` (width, height) in texels for images.

    within: the slot that contains this one; -1 for memory of its own.
    """

    id: int
    nbytes: int
    storage: Storage
    offset: int = 0
    image: tuple[int, int] | None = None
    image_dtype: DType = DType.FLOAT32
    image_slot: int = 0  # number of the pool's image, for DYNAMIC images
    label: str = ""
    within: int = -1


@dataclass(frozen=True)
class Port:
    """A graph input or output: name, dtype, shape, and the host slot of its array."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    host: int


@dataclass(frozen=True)
class ReservedPort:
    """Persistent memory of a program: the name of its input, its slot, and how it is stored."""

    name: str
    slot: int
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SlotArg:
    """Kernel argument: the memory of a device slot."""

    slot: int


@dataclass(frozen=True)
class TexelsArg(SlotArg):
    """Kernel argument: the memory of a constant's slot as an image over the buffer, of texels of four uint32."""


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
        """Text, options and name, as arguments of a build."""
        return self.text, self.options, self.name


@dataclass(frozen=True)
class LaunchStep:
    """Enqueue `entry` of source number `source`. `grid` is a multiple of `group`, unless `group` is None.

    open_group: any work-group is valid, so that one too large for the kernel's registers may shrink. walk: number of
    the work partition: launches of one partition assign equal parts of their outputs to work-groups of the same number;
    -1 if unknown. own: arguments, by number, of which a work-group accesses only its own part; the output is the first.
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
    """Run one ONNX operator on the host. `proto` is the serialized NodeProto, `opset` its domain's version."""

    op_type: str
    domain: str
    opset: int
    proto: bytes
    inputs: tuple[int, ...]  # host slots; -1 where an optional input is absent
    outputs: tuple[int, ...]
    node: str = ""


@dataclass(frozen=True)
class ReferenceStep:
    """Run a canonical operator's NumPy reference on the host, for types without device kernels."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    node: str = ""


Step = LaunchStep | UploadStep | DownloadStep | HostStep | ReferenceStep


@dataclass
class MemoryReport:
    """Arena totals by strategy, and the lower bound (most bytes alive at once), in bytes."""

    chosen: str = ""
    totals: dict[str, int] = field(default_factory=dict)
    lower_bound: int = 0
    static: int = 0
    separate: int = 0
    images: int = 0  # bytes of the image pool, outside the arena
    nested: int = 0  # number of tensors inside other tensors' memory


@dataclass(frozen=True)
class TuningRecord:
    """Queries to the tuning database during planning, and its answers (tune/plan_dependencies.py).

    graph, nodes: signatures. stamp: of the database's file during planning. answers: digest of the entries found.
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
    placement: Sequence[Any] = ()  # NodeReports for explain()
    stores_halves: bool = False  # whether a computed value is stored in halves and may overflow
    tuning: TuningRecord | None = None  # tuning queries during planning; None if not recorded
    reserved: list[ReservedPort] = field(default_factory=list)
    weight_keys: dict[int, str] = field(default_factory=dict)  # content keys of weights, if known


@dataclass
class NodeReport:
    """One node after planning. `seconds` is the cost model's estimate, or the tuner's time if `measured`.

    model_nodes: (operator, name) of each ONNX node that it computes; none if a pass added it.
    """

    index: int
    name: str
    op: str
    origin: str
    target: str  # opencl, host or view
    kernel: str
    outputs: tuple[str, ...]
    places: tuple[str, ...]
    params: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    candidates: tuple[tuple[str, str, float, bool], ...] = ()  # kernel, output layout, seconds, whether measured
    refusals: dict[str, str] = field(default_factory=dict)
    launches: int = 0
    flops: float = 0.0
    nbytes: float = 0.0
    epilogue: str = ""
    seconds: float = 0.0
    measured: bool = False
    group: tuple[int, ...] | None = None  # the tuned work-group; None: the default one
    model_nodes: tuple[tuple[str, str], ...] = ()


def task_report(label: str, op: str, why: str, target: str = "host") -> NodeReport:
    """A report on a host task between two programs."""
    return NodeReport(0, label, op, op, target, "", (), (), why=why)


class LazyList(Sequence[Any]):
    """The items of `make()`, computed at the first use."""

    def __init__(self, make: Callable[[], Sequence[Any]]) -> None:
        self._make = make
        self._made: Sequence[Any] | None = None

    def _items(self) -> Sequence[Any]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, index: Any) -> Any:
        return self._items()[index]

    def __len__(self) -> int:
        return len(self._items())
