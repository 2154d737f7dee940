"""Cost tables: their fields, and the row for a device, each field from the most specific file that has it.

Cycles are per compute unit; CPU times are in vector multiply-adds, two per cycle.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ..ir.device.device_info import DeviceInfo
from ..lazy_dataclass import dataclass

_FOLDER = Path(__file__).parent
_ORIGIN = ("measured", "shown_by")
_T = TypeVar("_T", bound="Table")

UNKNOWN_SHARE = 0.1
"""Share of the peak of a kernel that no table names."""


@dataclass(frozen=True)
class Table:
    """Named costs of one kind of kernel. The TOML table has the subclass's name in snake case."""

    table: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.table = re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower()

    @classmethod
    def of(cls, device: DeviceInfo) -> Self:
        """The row for `device`."""
        return find_row(cls, *_layer_key(device))

    @classmethod
    def named(cls, name: str, device: DeviceInfo) -> Self:
        """The row `name` of a table with a row per kernel."""
        return find_row(cls, *_layer_key(device), name)

    @classmethod
    def origin(cls, device: DeviceInfo) -> str:
        """The words on where the numbers for `device` are from: of the most specific file that has the table."""
        found = [layer[cls.table] for _, layer in layers(*_layer_key(device)) if cls.table in layer]
        return str(found[-1].get("measured", "")) if found else ""


def share_of_peak(kernel: str, device: DeviceInfo) -> float:
    """Share of the device's peak that an untuned run of `kernel` is assumed to reach."""
    return float(_merged("share_of_peak", *_layer_key(device)).get(kernel, UNKNOWN_SHARE))


_rows: dict[tuple[type[Table], str, str, str, str], Any] = {}


def find_row(table: type[_T], kind: str, family: str, generation: str, name: str = "") -> _T:
    """The row of `table` for devices of a kind (cpu or gpu), family and generation; cached."""
    key = (table, kind, family, generation, name)
    row: _T | None = _rows.get(key)
    if row is None:
        path = f"{table.table}.{name}" if name else table.table
        row = _rows[key] = table(**_merged(path, kind, family, generation))
    return row


@cache
def _merged(path: str, kind: str, family: str, generation: str) -> Mapping[str, Any]:
    """The fields of a TOML table, each from the most specific file that has it, without `measured` and `shown_by`."""
    fields: dict[str, Any] = {}
    for _, layer in layers(kind, family, generation):
        found: Any = layer
        for part in path.split("."):
            found = found.get(part, {})
        fields |= {k: v for k, v in found.items() if k not in _ORIGIN}
    return fields


def layers(kind: str, family: str, generation: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, tables) of the files for a device, the most specific last."""
    for name in ("any", kind, family, f"{family}-{generation}"):
        if (tables := _read(name)) is not None:
            yield name, tables


@cache
def _read(name: str) -> Mapping[str, Any] | None:
    path = _FOLDER / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _layer_key(device: DeviceInfo) -> tuple[str, str, str]:
    return ("cpu" if device.is_cpu else "gpu"), device.family, device.generation


@dataclass(frozen=True)
class DirectTile(Table):
    """Matrix-unit tiles with operands loaded straight into registers (kernels/mma/mma_tile.py), in clock cycles."""

    multiply: float  # one pair of mma.m16n8k16
    load_rows: float  # loading 16 positions of a step in 8-byte pieces, with address arithmetic
    load_weights: float  # loading 16 channels of a step
    latency: float  # latency of the loads in flight
    l2_bytes: float  # L2 cache bytes per cycle and multiprocessor
    reduce: float  # reduction of partial sums
    store: float  # one result through the epilogue to memory
    begin_and_end: float  # until the first loads arrive, and from the last stores to the next launch
    mixed: float  # share of busy, waiting and fetching time that does not overlap with the others
    even: float  # how far a last, partly filled turn of work-groups counts by its share alone


@dataclass(frozen=True)
class StagedTile(Table):
    """Matrix-unit tiles with operands staged in local memory (kernels/mma/staged_tile.py), in clock cycles."""

    multiply: float  # one pair of mma.m16n8k16
    local_bytes: float  # local memory bytes per cycle
    l2_bytes: float  # L2 cache bytes per cycle and multiprocessor
    copy: float  # a warp's copy instruction with its address arithmetic
    alone: float  # slowdown of a stage with a single work-group per multiprocessor
    store: float  # one result through the epilogue to memory
    partial: float  # one partial sum through local memory
    begin_and_end: float  # until the first stages have arrived, and from the last stores to the next launch
    even: float  # how far a last, partly filled turn of work-groups counts by its share alone


@dataclass(frozen=True)
class WarpgroupTile(Table):
    """Tiles of Hopper's wgmma instructions (kernels/mma/wgmma_tile.py), in clock cycles."""

    multiply: float  # one result's 32 terms
    l2_bytes: float  # L2 cache bytes per cycle and multiprocessor
    pieces: float  # loading a position's part of a chunk in 8-byte pieces (channel-packed input)
    look: float  # accumulating row statistics of a position's part of a chunk
    mixed: float  # share of the times above that does not overlap with other times
    latency: float  # latency of a chunk
    step: float  # a chunk's two instructions without waiting
    first: float  # latency of a work-group's first chunks
    store: float  # one result through the epilogue to memory
    begin_and_end: float  # launch overhead: until the first groups start, and from the last stores to the next launch
    operand: float  # one value of an operand of the epilogue
    even: float  # how far a last, partly filled turn of work-groups counts by its share alone
    second: float  # the launch that reduces the partial sums
    add: float  # one partial sum, written and read
    caution: float  # safety factor of these estimates relative to other kinds' estimates, whose error is a fifth
    ahead: float  # share of the other kinds' time from which the other kinds are used to normalise rows


@dataclass(frozen=True)
class MatrixUnits(Table):
    """Time of the better kind of matrix-unit kernel (kernels/mma/mma_cost.py)."""

    share: float  # share of the peak, which excludes matrix units
    overlap: float  # factor of the transfer time, so that ties go to kernels with the least arithmetic
    streamed: float  # factor of the transfer time for few rows, whose plain kernels are bound by reading weights
    normalize: float  # operations per element of a that a work-group reads to normalise rows


@dataclass(frozen=True)
class AttentionWalk(Table):
    """Time of a work-group's loop over the keys of a head on GPUs (kernels/attention/)."""

    turn_s: float  # from loading keys to accumulating their values
    blocks: float  # factor of turn_s if keys and values are staged in local memory in blocks
    whole: float  # the same if whole heads are staged
    growth: float  # assumed growth factor of a cache of dynamic size
    look: float  # fewest operations for which a launch that scans the mask pays


@dataclass(frozen=True)
class HeadTile(Table):
    """Attention with whole heads in local memory (kernels/attention/flash_gpu.py), in multiply-adds of a work-item."""

    read: float  # a read of a vector from local memory
    join: float  # a partial sum, written and read
    alone: float  # further turns' worth of waits that no other group of the compute unit hides


@dataclass(frozen=True)
class Unpacking(Table):
    """Conversion of low-bit numbers to floats (kernels/quantized/), in vector multiply-adds."""

    in_registers: float  # per tile of rows
    in_cache: float  # once for many tiles, including writing and reading


@dataclass(frozen=True)
class ByteDots(Table):
    """Products with int8 activations (kernels/quantized/dynamic_quantized_matmul.py), in float vector multiply-adds."""

    pairs: float  # cost of four products by two pairwise instructions, relative to one 4-way instruction
    finish: float  # converting and scaling the sums of a group
    spread: float  # unpacking a vector of four bytes per lane from words
    rounding: float  # quantising a vector of floats to bytes


@dataclass(frozen=True)
class IntegerPanels(Table):
    """Int8 matrix products on CPUs (kernels/integer/matmul_vnni.py), in float vector multiply-adds."""

    load: float  # loading a vector of words for all rows of a tile
    finish: float  # zero-point correction and store of a vector of sums


@dataclass(frozen=True)
class IntegerTile(Table):
    """Int8 convolutions on CPUs (kernels/integer/conv_vnni.py), in VNNI instructions."""

    latency: float  # number of independent instructions that keep a core busy
    load: float  # loading a filter vector, or broadcasting a word of x
    turn: float  # loop overhead per word
    stage: float  # staging a pixel, or transposing four
    begin: float  # beginning a tile
    finish: float  # epilogue and store of a vector of sums


@dataclass(frozen=True)
class IntegerDot(Table):
    """Int8 products by 4-way dot products (kernels/integer/dot4_common.py), in clock cycles."""

    instructions: float  # dot products per cycle and compute unit, counted by work-item
    waves: float  # 64-byte L1 cache accesses per cycle and compute unit
    latency: float  # exposed latency per iteration of the innermost loop
    begin_and_end: float  # from a launch to the first loads, and from the last stores to the next
    reduce: float  # reduction of partial sums
    mixed: float  # share of busy and waiting time that does not overlap
    gain: float  # rate relative to floats with the instruction
    loss: float  # rate relative to floats without the instruction
    tiled: float  # share of the peak of tiled products
    depthwise: float  # share of the peak of depthwise convolutions


@dataclass(frozen=True)
class SplitConv(Table):
    """Split-k convolutions (kernels/conv/direct_split_k.py), in clock cycles."""

    term: float  # latency of one channel block, a few blocks in flight
    weight: float  # additional latency per output block
    reduce: float  # reduction of partial sums
    load: float  # a wave's load of adjacent blocks from the L1 cache
    shared_load: float  # a wave's load of one weight block
    mixed: float  # share of busy and waiting time that does not overlap
    slower: float  # launch overhead relative to these estimates, which rank parameters
    begin_and_end: float  # from a launch to its first loads, and from its last stores to the next launch


@dataclass(frozen=True)
class SharedTile(Table):
    """Register tiles of plain multiply-adds with local memory (kernels/fma/tile_parameters.py), in clock cycles."""

    read: float  # a wave's read of vectors from local memory
    copy: float  # a wave's copy of vectors from global to local memory, with address arithmetic
    l2_bytes: float  # L2 cache bytes per cycle and compute unit
    mixed: float  # share of the reads that does not overlap arithmetic
    turn: float  # exposed wait of a work-group per iteration
    alone: float  # slowdown of arithmetic with a single wave
    store: float  # one result through the epilogue to memory; as much for each value of an operand
    hidden: float  # share of `store` that is exposed if other work-groups compute meanwhile
    begin_and_end: float  # until the first slabs have arrived, and from the last stores to the next launch
    second: float  # the launch that reduces the partial sums
    add: float  # one partial sum
    transforms: float  # share of the bandwidth at which Winograd's transforms move their bytes
    most_shares: int  # untuned split of a work-group's terms
    most_parts: int  # untuned number of work-groups that split the terms of a tile


@dataclass(frozen=True)
class LocalMemory(Table):
    """Relative speed of matrix products with and without local memory tiles (kernels/matmul/)."""

    repeated: float  # slowdown by redundant loads of adjacent work-items, which tiles would avoid
    through_memory: float  # slowdown of tiles if local memory is emulated in global memory


@dataclass(frozen=True)
class RegisterTile(Table):
    """Register tiles of channel-packed CPU convolutions (kernels/conv/register_tiles.py), in vector multiply-adds."""

    latency: float  # number of independent instructions that keep a core busy
    weight: float  # loading one weight vector from the L2 cache
    operand: float  # one load, weight or broadcast
    crowded: float  # slowdown where accumulators fill more than half the registers, and are spilled between staged runs
    issue: float  # one instruction if another thread shares the core
    turn: float  # loop overhead of one input channel
    slack: float  # slowdown accepted for a tile whose program other layers use
    chunk_bytes: int  # bytes of filters that stay in the L1 cache together with the inputs
    group: int  # tiles that share a chunk
    kept: int  # accumulators that may be kept for these tiles
    cached_bytes: int  # bytes of a layer's filters that are assumed to be in the L2 cache


@dataclass(frozen=True)
class RowTile(Table):
    """Row-major convolution vectorised along rows (kernels/conv/row_major_vectors.py), in vector multiply-adds."""

    run: float  # exposed time of staging one run of input columns
    turn: float  # largest `run` per filter element


@dataclass(frozen=True)
class Winograd(Table):
    """Winograd convolution (kernels/conv/winograd.py)."""

    cache_speedup: float  # bandwidth of transformed tiles relative to memory, since they stay in a cache
    fetch_speedup: float  # bandwidth of prefetched filters relative to memory
    streamed: float  # additional cost of a weight vector from the L2 cache


@dataclass(frozen=True)
class Windows(Table):
    """Work-items that slide windows, and tensors in images."""

    waiting: float  # remaining speed if work-items own whole sums and wait for memory
    texture_gain: float  # speed-up of images on devices whose texture cache buffers bypass
    tile: float  # fixed cost of a tile in columns (kernels/conv/per_channel_window.py)
    walk: float  # share of `tile` for work-items that iterate down columns (kernels/conv/per_channel_window.py)
    walkers: float  # such work-items that occupy a compute unit
    turn_s: float  # a row of the filter, until which its loads keep a work-item waiting (kernels/conv/direct_packed.py)


@dataclass(frozen=True)
class EstimateError(Table):
    """Estimates of whole networks beside times that are known for devices of this kind (docs/devices.md)."""

    ratio: float  # estimate / time, in the geometric mean over networks
    factor: float  # around that ratio, within which two thirds of the networks lie


@dataclass(frozen=True)
class SequentialSteps(Table):
    """Kernels whose work-items, or work-groups, run steps in sequence; one row per kernel."""

    at_once: int  # sequences in flight per compute unit
    step_s: float  # seconds per step

    def turns(self, walks: int, device: DeviceInfo) -> int:
        """Number of rounds in which the device runs `walks` sequences, `at_once` per compute unit at a time."""
        return -(-walks // (self.at_once * device.compute_units))

    @classmethod
    def seconds(cls, kernel: str, device: DeviceInfo, walks: int, steps: float) -> float:
        """Seconds for `walks` sequences of `steps` steps each, by the row of `kernel`."""
        row = cls.named(kernel, device)
        return row.turns(walks, device) * steps * row.step_s


@dataclass(frozen=True)
class Movement(Table):
    """Costs of moved bytes relative to a plain copy."""

    square: float  # factor of a tiled transpose
    partial_moments: float  # factor of a normalisation by partial moments
    gathered_lanes: float  # slowdown of a CPU if contiguous runs are shorter than vectors
    marked_row_s: float  # seconds per row for marking the last update, on one compute unit
