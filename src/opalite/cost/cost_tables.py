"""What the tables hold. Cycles are a compute unit's; times on CPUs are in multiply-adds of vectors, two a cycle."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.device.device_info import DeviceInfo
from .table_lookup import Table


@dataclass(frozen=True)
class DirectTile(Table):
    """Tiles of matrix units whose operands go straight into registers (kernels/mma/mma_tile.py), in clock cycles."""

    table = "direct_tile"

    multiply: float  # one pair of mma.m16n8k16
    load_rows: float  # 16 positions of a step: pieces of 8 bytes, and finding their addresses
    load_weights: float  # 16 channels of a step
    latency: float  # until the loads on their way have arrived
    l2_bytes: float  # bytes a clock that the caches give one multiprocessor
    reduce: float  # adding up partial sums
    store: float  # one result through the epilogue to memory
    begin_and_end: float  # until the first loads arrive, and from the last stores to the next launch
    mixed: float  # share of each of the busy, the waiting and the fetching time that hides behind none of the others
    even: float  # how far a last, partly filled turn of work-groups counts by its share alone


@dataclass(frozen=True)
class StagedTile(Table):
    """Tiles of matrix units that work from stages in local memory (kernels/mma/staged_tile.py), in clock cycles."""

    table = "staged_tile"

    multiply: float  # one pair of mma.m16n8k16
    local_bytes: float  # bytes a clock that local memory gives
    l2_bytes: float  # bytes a clock that the second level gives one multiprocessor
    copy: float  # a warp's instruction that starts copies, with what finds their addresses
    alone: float  # how much longer a work-group takes for a stage that no other fills the gaps of
    store: float  # one result through the epilogue to memory
    partial: float  # one partial sum through local memory
    begin_and_end: float  # until the first stages have arrived, and from the last stores to the next launch
    even: float  # how far a last, partly filled turn of work-groups counts by its share alone


@dataclass(frozen=True)
class WarpgroupTile(Table):
    """Tiles of Hopper's warpgroups (kernels/mma/wgmma_tile.py), in clock cycles."""

    table = "warpgroup_tile"

    multiply: float  # one result's 32 terms
    l2_bytes: float  # bytes a clock that the second level gives one multiprocessor
    pieces: float  # a position's share of a chunk in pieces of 8 bytes, as packed pictures have it
    look: float  # a position's share of a chunk that is added up for its row's statistics
    mixed: float  # share of those times that hides behind none of the others
    latency: float  # until a chunk has arrived
    step: float  # a chunk's two instructions in a work-group that waits for no data
    first: float  # until a work-group's first chunks have arrived
    store: float  # one result through the epilogue to memory
    begin_and_end: float  # until the first groups begin, and from the last stores to the next launch
    operand: float  # one value of an operand of the epilogue
    even: float  # how far a last, partly filled turn of work-groups counts by its share alone
    second: float  # the launch that adds up the sums of parts
    add: float  # one of those sums, written and read
    caution: float  # what estimates are multiplied by beside those of the other kinds, which err by a fifth
    ahead: float  # share of the other kinds' time from which on those normalise rows


@dataclass(frozen=True)
class MatrixUnits(Table):
    """What the better kind of kernel for matrix units takes (kernels/mma/mma_cost.py)."""

    table = "matrix_units"

    share: float  # of the peak without matrix units
    overlap: float  # of the time to move the bytes, so that ties go to the kernels with the least arithmetic
    streamed: float  # likewise, where the weights of few rows are read beside plain multiply-adds
    normalize: float  # operations for each element of a that a work-group looks at to normalise rows


@dataclass(frozen=True)
class AttentionWalk(Table):
    """What a work-group takes to walk the keys of a head on GPUs (kernels/attention/)."""

    table = "attention_walk"

    turn_s: float  # from the loads of some keys to the sums of their values
    blocks: float  # as often as that where keys and values go block by block through local memory
    growth: float  # how much longer a cache is thought to become that is not of one size
    look: float  # operations from which a launch pays that looks for keys which a mask hides from many queries


@dataclass(frozen=True)
class Unpacking(Table):
    """What numbers of a few bits take to become floats (kernels/quantized/), in multiply-adds of a vector."""

    table = "unpacking"

    in_registers: float  # as often as a tile of rows needs them
    in_cache: float  # once for many tiles, with what it takes to write and read them there


@dataclass(frozen=True)
class ByteDots(Table):
    """Products of rounded rows (kernels/quantized/dynamic_quantized_matmul.py), in multiply-adds of a vector of
    floats."""

    table = "byte_dots"

    pairs: float  # an instruction's worth of four products by two that sum pairs, beside one that sums fours
    finish: float  # sums of a group become floats and are scaled
    spread: float  # a vector of four bytes a lane is taken out of words
    rounding: float  # a vector of floats becomes bytes


@dataclass(frozen=True)
class IntegerPanels(Table):
    """Products of 8-bit integers on CPUs (kernels/integer/matmul_vnni.py), in multiply-adds of a vector of floats."""

    table = "integer_panels"

    load: float  # a vector of words is loaded for all rows of a tile
    finish: float  # sums of a vector are corrected for zero points and stored


@dataclass(frozen=True)
class IntegerTile(Table):
    """Convolutions of 8-bit integers on CPUs (kernels/integer/conv_vnni.py and depthwise_vnni.py), in instructions
    of four products to a lane."""

    table = "integer_tile"

    latency: float  # independent ones that keep a core busy
    load: float  # a vector of filters, or a word of x for all lanes
    turn: float  # what a word's turn takes beside
    stage: float  # a pixel is staged, or four are turned
    begin: float  # a tile
    finish: float  # a vector of sums goes through the epilogue to memory


@dataclass(frozen=True)
class IntegerDot(Table):
    """Products of 8-bit integers, four to an instruction (kernels/integer/dot4_common.py), in clock cycles."""

    table = "integer_dot"

    instructions: float  # that a compute unit starts each clock, counted by work-item
    waves: float  # loads of a wave that a compute unit's first-level cache serves each clock, in 64 bytes
    latency: float  # of one turn of the innermost loop that nothing hides
    begin_and_end: float  # from a launch to the first loads, and from the last stores to the next
    reduce: float  # adding up partial sums
    mixed: float  # share of the busy and the waiting time that does not hide behind the other
    gain: float  # rate beside that of floats where there is such an instruction
    loss: float  # and where there is none
    tiled: float  # share of the peak that tiled products reach
    depthwise: float  # and depthwise convolutions


@dataclass(frozen=True)
class SplitConv(Table):
    """Convolutions whose sums are shared out over work-items (kernels/conv/direct_split_k.py), in clock cycles."""

    table = "split_conv"

    term: float  # from the loads of one block of channels to its products, a few blocks on their way
    weight: float  # more of them for each output block
    reduce: float  # adding up partial sums
    load: float  # a wave's load of neighbouring blocks from the first-level cache
    shared_load: float  # a wave's load of one weight block
    mixed: float  # share of the busy and the waiting time that does not hide behind the other
    slower: float  # what a launch takes beside these estimates, which order its parameters
    begin_and_end: float  # and from a launch to its first loads, and from its last stores to the next


@dataclass(frozen=True)
class SharedTile(Table):
    """Register tiles of plain multiply-adds from tiles in local memory (kernels/fma/tile_parameters.py), in clock
    cycles."""

    table = "shared_tile"

    read: float  # a wave's read of vectors from local memory
    copy: float  # a wave's vectors from global into local memory, with what finds their addresses
    l2_bytes: float  # bytes a clock that the second level gives one compute unit
    mixed: float  # share of the reads that does not hide behind arithmetic
    turn: float  # what a work-group waits in each turn that no other fills
    alone: float  # how much longer a wave takes for its arithmetic that no other fills the gaps of
    store: float  # one result through the epilogue to memory; as much for each value of an operand
    hidden: float  # share of that where other work-groups multiply meanwhile
    begin_and_end: float  # until the first slabs have arrived, and from the last stores to the next launch
    second: float  # the launch that adds up the sums of parts
    add: float  # one of those sums
    transforms: float  # share of the bandwidth at which Winograd's transforms move their bytes
    most_shares: int  # of a work-group's terms, untuned
    most_parts: int  # work-groups that share the terms of a tile, untuned


@dataclass(frozen=True)
class LocalMemory(Table):
    """Products with and without tiles in local memory (kernels/matmul/), beside each other."""

    table = "local_memory"

    repeated: float  # slowdown of work-items that load what their neighbours load, where tiles would spare them that
    through_memory: float  # slowdown of tiles in local memory that lies in global memory


@dataclass(frozen=True)
class RegisterTile(Table):
    """Register tiles of channel-packed convolutions on CPUs (kernels/conv/register_tiles.py), in multiply-adds of
    vectors."""

    table = "register_tile"

    latency: float  # independent ones that keep a core busy
    weight: float  # time of one weight vector's way from the second-level cache
    operand: float  # time of one load, weight or broadcast
    crowded: float  # slowdown where accumulators fill more than half the registers, and are spilled between staged runs
    issue: float  # time of one instruction where another thread shares the core
    turn: float  # loop overhead of one input channel
    slack: float  # share of the least time within which layers take the tile that others have, and its program
    chunk_bytes: int  # of filters that stay in the first-level cache beside the inputs
    group: int  # tiles that share a chunk
    kept: int  # accumulators that may be kept for them
    cached_bytes: int  # filters of a layer that are taken to be in the second-level cache


@dataclass(frozen=True)
class RowTile(Table):
    """Row-major convolution with vectors along the rows (kernels/conv/row_major_vectors.py), in multiply-adds of
    vectors."""

    table = "row_tile"

    run: float  # time of staging one run of input columns, as far as it is not hidden
    turn: float  # most of it that one filter element bears


@dataclass(frozen=True)
class Winograd(Table):
    """Winograd's minimal filtering (kernels/conv/winograd.py)."""

    table = "winograd"

    cache_speedup: float  # how much faster than main memory transformed tiles move, as they stay in a cache
    fetch_speedup: float  # how much faster filters come that a CPU fetches while it multiplies by others
    streamed: float  # what a weight vector costs beyond its load where it comes from the second-level cache


@dataclass(frozen=True)
class Windows(Table):
    """Work-items that slide windows, and tensors in images."""

    table = "windows"

    waiting: float  # share of a kernel's speed that is left where work-items own whole sums and wait for memory
    texture_gain: float  # speed-up where the device prefers images: texels go through a cache that buffers go round
    tile: float  # columns that a tile costs beside its own (kernels/conv/per_channel_window.py)
    walk: (
        float  # share of that time that work-items take which walk down columns (kernels/conv/depthwise_column_walk.py)
    )
    walkers: float  # of these that a compute unit wants


@dataclass(frozen=True)
class SequentialSteps(Table):
    """Kernels whose work-items, or work-groups, each take one step after the other: a row for each kernel."""

    table = "sequential_steps"

    at_once: int  # walks that a compute unit has on their way
    step_s: float  # seconds that one step takes

    def turns(self, walks: int, device: DeviceInfo) -> int:
        """How many of `walks` the device takes one after the other."""
        return -(-walks // (self.at_once * device.compute_units))


@dataclass(frozen=True)
class Movement(Table):
    """What bytes cost beside those of a plain copy."""

    table = "movement"

    square: float  # bytes of a transpose through squares
    partial_moments: float  # bytes of a normalisation by partial moments
    gathered_lanes: float  # slowdown of a CPU whose vectors are longer than the runs of neighbouring elements
    marked_row_s: float  # seconds that marking the last update of one row takes, on one compute unit
