"""Source of a megakernel: kernels as plain functions, and one kernel that calls them step by step.

Each launch of a Program becomes a row of a step table. The workers of a single launch process the table together. An
OpenCL C kernel becomes a function that computes some of a launch's work-groups; work-item ids become parameters.
Kernels with barriers between several work-items, or with images, remain launches of their own. The loop over the table
is megakernel_steps.cl, the kernels around it megakernel_run_steps.cl and megakernel_serve_steps.cl.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .program import LaunchStep, LocalArg, ScalarArg, SlotArg, SourceSpec, StepArg, TexelsArg

# A kernel ends at the first line that is a single closing brace.
_HEAD = r"^(?:__attribute__\(\(reqd_work_group_size[^\n]*\n)?kernel [^\n]*?\bvoid "
_KERNEL = r"(?ms)" + _HEAD + r"(\w+)\(.*?^}$"
_COMMENT = r"//[^\n]*"
_IMAGE = r"\b(image2d_t|sampler_t)\b"
_MEETING = r"\bbarrier\b"
_GRID = r"\bget_(global_size|num_groups|global_offset)\b"
_ALONE = r"-D(WG|LY|GROUP)=1\b"  # one work-item along the axis whose items share a result: no barrier
_READ = {
    "int32": "(int)a[{}]",
    "uint32": "(uint)a[{}]",
    "int64": "(long)a[{}]",
    "uint64": "a[{}]",
    "float32": "as_float((uint)a[{}])",
    "float64": "as_double(a[{}])",
}
_NUMBERS = ", ".join(f"size_t {of}_{axis}_" for of in ("item", "group", "local") for axis in "xyz")
_NUMBERING = """#define local
#define LOCAL_IS_PRIVATE
#define barrier(flags)
#define OF_AXIS(d, v) ((d) == 0 ? v##_x_ : (d) == 1 ? v##_y_ : v##_z_)
#define get_global_id(d) OF_AXIS(d, item)
#define get_group_id(d) OF_AXIS(d, group)
#define get_local_id(d) OF_AXIS(d, local)
#define get_local_size(d) 1
// What functions beside the kernel see: they use the axis along which a work-item is alone, if any.
enum { local_x_ = 0, local_y_ = 0, local_z_ = 0 };
"""
_PARAMETERS = "global const ulong *a, global const uint *shape, uint begin, uint end"

SHAPE = 8
"""Row of the shape table: function, first argument, work-groups (total, x, y), work-items of a group (x, y, z)."""

RANGES = 8
"""Most parts of a step's work-groups: each worker begins with its own part."""

LINE = 16
"""uints in a cache line. A row of counters has a line for finished work-groups, and one for each part's taken ones."""

CONTROL = ("ASKED", "LEAVE", "LEFT", "STAY", "INSIDE", "CAME", "SPARE")
"""Control words of the host and of polling workers, each in a cache line of its own (16 uints apart).

ASKED: the requested run. LEAVE: whether workers should leave. LEFT: how many have left. STAY: how many ticks / TICKS a
worker polls for the next run before it leaves. INSIDE: how many may be reading tables. Of the present launch: how many
workers CAME, and whether one was SPARE.
"""

TICKS = 1024
"""Clock ticks in a unit of STAY."""

CALL = (
    *("TABLE", "WORDS", "WORKERS", "CODE", "MODE", "CLOCK"),
    *("MAX_ITERATIONS", "ITERATIONS_DONE", "CONDITION", "COPIES", "COPY_COUNT", "CORE"),
)
"""Arguments of a polling worker, a ulong each.

TABLE: address of the present table. WORDS: address of the control words. WORKERS: workers that share a run, 1 if the
host runs alone, 0 if no worker is left or will come, so that nothing is counted. serve_steps writes CODE, MODE and
CLOCK: address of the host's function, rounding mode of workers, and the processor's clock. For a run that repeats its
steps: MAX_ITERATIONS; ITERATIONS_DONE; CONDITION: address of the byte that says whether another iteration follows (0:
always); COPIES, COPY_COUNT: address and number of the HOST_COPYs between iterations. CORE: the host's core when it
launched the workers.
"""

HOST_COPY = ("TO", "FROM", "BYTES", "TO_STEP", "FROM_STEP", "WHEN")
"""A copy by the host after each iteration, a ulong each. WHEN: 0 always (these first), 1 before a next iteration."""

TABLE = ("ARGS", "SHAPES", "COUNTERS", "STEPS", "TURN")
"""The steps for one set of sizes, a ulong each. TURN: number of the present or last run; largest uint before any."""

SPINS, LEAST_SPINS = 20000, 100
"""Spins of a worker before it sleeps: at first (half a millisecond), and after repeated long waits."""


def step_refusal(source: SourceSpec, step: LaunchStep) -> str | None:
    """The reason why `step` of `source` must stay a launch of its own; None if it may become a function."""
    for a in step.args:
        if isinstance(a, ScalarArg) and a.value.dtype.name not in _READ:
            return f"it takes an argument of type {a.value.dtype.name}"
    found = _only(source.text, step.entry)
    if found is None:
        return f"kernel {step.entry} is not written as one block"
    found = re.sub(_COMMENT, "", found)
    # Sources of kernels that may read texels mention their type in any case.
    if re.search(_IMAGE, found) or any(isinstance(a, TexelsArg) for a in step.args):
        return "it reads or writes images"
    if re.search(_GRID, found):
        return "it asks for the size of its grid, which functions are not given"
    if not is_single(step) and re.search(_MEETING, found) and not re.search(_ALONE, source.options):
        return "its work-items have barriers"
    return None


def part_count(workers: int) -> int:
    """Number of parts of each step, used by both the program and the counter table."""
    return min(workers, RANGES)


def group_counts(
    sizes: Sequence[int], items: Sequence[int] | None
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """(work-groups, work-items of a group) along x, y and z of a launch with that grid and work-group."""
    grid = (*sizes, 1, 1)[:3]
    group = (*(items or (1, 1, 1)), 1, 1)[:3]
    return (grid[0] // group[0], grid[1] // group[1], grid[2] // group[2]), (group[0], group[1], group[2])


def signature(step: LaunchStep) -> tuple[object, ...]:
    """Everything besides the source that a step's function depends on: equal steps share the function."""
    kinds = tuple(a.nbytes if isinstance(a, LocalArg) else _read(a, 0) for a in step.args)
    return step.source, step.entry, kinds, is_single(step)


def is_single(step: LaunchStep) -> bool:
    """Whether a work-group is one work-item, for which barriers do nothing."""
    return math.prod(step.group or (1,)) == 1


def function_text(text: str, step: LaunchStep, symbol: str) -> str:
    """The source with `step`'s kernel as the function `symbol`, which computes work-groups `begin` to `end`."""
    found = _only(text, step.entry)
    assert found is not None, f"{step.entry}: asked for after step_refusal"
    found = re.sub(
        rf"{_HEAD}{step.entry}\(",
        f"static inline __attribute__((always_inline)) void {step.entry}({_NUMBERS}, ",
        found,
        flags=re.MULTILINE,
    )
    locals_ = "".join(
        f"    char local_{i}[{max(a.nbytes, 1)}] __attribute__((aligned(128)));\n"
        for i, a in enumerate(step.args)
        if isinstance(a, LocalArg)
    )
    arguments = ", ".join(_read(a, i) for i, a in enumerate(step.args))
    body = _single(step.entry, arguments) if is_single(step) else _many(step.entry, arguments)
    return f"{_NUMBERING}{found}\nvoid {symbol}({_PARAMETERS}) {{\n{locals_}{body}}}\n"


def loop_text(functions: int, stays: bool, workers: int) -> str:
    """The program that calls `step_0` to `step_{functions - 1}`, for up to `workers` workers.

    A worker takes work-groups of the first step until none is left, waits until all are done, and goes on to the next
    step. It begins with its own part, half of the remainder at a time, so that its core's cache holds the weights and
    its own results, and then helps with other parts. It waits only for work-groups that other workers have begun, so
    that any number of workers finishes, however late they start.

    Unless `stays`, run_steps: each work-item is a worker; clear_steps resets the counters afterwards. If `stays`,
    serve_steps (host_thread_loop.py): a worker in addition to the host thread, for the current run and runs that follow
    soon; or the kernel returns the address of the function that the host thread calls to execute steps. Counters only
    grow: in run `turn` of a table they start at `turn` times the work-groups of a part, so that a late worker finds
    nothing to do. The host writes TURN after everything that the run reads.

    address: a kernel that returns a buffer's address.
    Workers that have waited long sleep, by inline assembly in a called function: PoCL 5 and 6 crash on compiling a
    kernel that contains assembly (tests/portability/faults/pocl_assembly.py).
    """
    declared = "".join(f"void step_{i}({_PARAMETERS});\n" for i in range(functions))
    cases = "".join(f"        case {i}: step_{i}(args + s[1], s + 3, first, last); break;\n" for i in range(functions))
    numbers = {"SHAPE": SHAPE, "RANGES": f"{part_count(workers)}u", "LINE": LINE, "TICKS": TICKS}
    numbers |= {"ROW": "(LINE * (RANGES + 1))", "SPINS": f"{SPINS}u", "LEAST_SPINS": f"{LEAST_SPINS}u"}
    defines = "".join(f"#define {name} {number}\n" for name, number in numbers.items())
    steps = _file("megakernel_steps.cl").replace("        CASES\n", cases)
    kernels = _serving_text() if stays else f"\n{_file('megakernel_run_steps.cl')}"
    return f"{declared}\n{defines}\n{steps}{kernels}\n{_ADDRESS}"


_ADDRESS = "kernel void address(global const void *memory, global ulong *found, uint i) { found[i] = (ulong)memory; }\n"


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _numbered(names: Sequence[str], stride: int) -> str:
    return "".join(f"#define {name} {stride * i}\n" for i, name in enumerate(names))


def _serving_text() -> str:
    numbers = _numbered(CONTROL, LINE) + _numbered(CALL, 1) + _numbered(TABLE, 1) + _numbered(HOST_COPY, 1)
    return f"{numbers}#define HOST_COPY {len(HOST_COPY)}\n\n{_file('megakernel_serve_steps.cl')}"


def _only(text: str, entry: str) -> str | None:
    """`text` without the kernels other than `entry`; None if `entry` is not found."""
    names = {m[1] for m in re.finditer(_KERNEL, text)}
    return re.sub(_KERNEL, lambda m: m[0] if m[1] == entry else "", text) if entry in names else None


def _read(a: StepArg, i: int) -> str:
    """The argument as the function reads it from its row."""
    if isinstance(a, SlotArg):
        return f"(global void *)a[{i}]"
    if isinstance(a, LocalArg):
        return f"(void *)local_{i}"
    return _READ[a.value.dtype.name].format(i)


def packed_scalar(value: np.generic) -> int:
    """A number as the 64 bits that the function reads."""
    return int.from_bytes(value.tobytes(), "little")


def _single(entry: str, arguments: str) -> str:
    """Loop over work-groups of one item."""
    return f"""    const uint nx = shape[0], ny = shape[1];
    uint x = begin % nx, y = begin / nx % ny, z = begin / nx / ny;
    for (uint i = begin; i < end; ++i) {{
        {entry}(x, y, z, x, y, z, 0, 0, 0, {arguments});
        if (++x == nx) {{
            x = 0;
            if (++y == ny) {{ y = 0; ++z; }}
        }}
    }}
"""


def _many(entry: str, arguments: str) -> str:
    """Loop over work-groups of several independent items, which may share vectors."""
    return f"""    const uint nx = shape[0], ny = shape[1], gx = shape[2], gy = shape[3], gz = shape[4];
    for (uint i = begin; i < end; ++i) {{
        const uint x = i % nx, y = i / nx % ny, z = i / nx / ny;
        for (uint lz = 0; lz < gz; ++lz)
            for (uint ly = 0; ly < gy; ++ly) {{
                #pragma clang loop vectorize(assume_safety)
                for (uint lx = 0; lx < gx; ++lx)
                    {entry}(x * gx + lx, y * gy + ly, z * gz + lz, x, y, z, lx, ly, lz, {arguments});
            }}
    }}
"""
