"""Persistent kernel: PTX of one kernel that executes several launches, with grid barriers between dependent ones.

Scalar arguments become constants, by which the compiler divides faster; those that change per run are loaded from the
launch parameter buffer. Memory arguments remain parameters. Steps that differ only in memory share code, because first
executions of instructions miss the instruction cache. A step with AWAIT waits there, after its loads of constants have
started. A group of the kernel has *slots*: concurrent work-groups of a step, each with its own barrier and shared
memory. All groups must be resident at once. A group whose wait times out sets a flag, and all groups leave.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from .inline_kernel import barrier, body_text, place_in_block, pointer_text
from .linked_launch import ARRIVED, LEFT, NAME, SHARED, SYNC, TABLE, TIMED_OUT, GridShape, pointers_of
from .step_dependencies import WARP, LinkedStep, StepOrder, begins_early, code_key, memory_of, shared_bytes

BARRIERS = 16
"""Hardware barriers of a group; the first is for the whole group."""
SPIN_LIMIT = 1 << 21
"""Reads of the counter before a wait times out: 0.3 s on an H200."""


def refusal(step: LinkedStep, shape: GridShape) -> str:
    """Reason why a step cannot be part of a linked kernel of that shape; '' if it can."""
    items = math.prod(step.group)
    if items > shape.threads:
        return f"its work-groups have {items} work-items, more than {shape.threads}"
    if items % WARP and (step.entry.has_warp_operations or (step.entry.has_barrier and WARP % items)):
        return f"its work-groups of {items} work-items synchronize, and are no whole warps"
    if shared_bytes(step) > shape.shared:
        return f"it needs {shared_bytes(step)} bytes of local memory"
    return ""


def slots_of(step: LinkedStep, shape: GridShape) -> int:
    """Number of work-groups of a step that run concurrently in a group."""
    items, nbytes = math.prod(step.group), shared_bytes(step)
    most = min(shape.threads // items, -(-math.prod(step.groups) // shape.groups))
    if step.entry.has_barrier and items >= WARP:
        most = min(most, BARRIERS - 1)
    return max(1, min(most, shape.shared // nbytes) if nbytes else most)


def link(
    steps: Sequence[LinkedStep],
    params: int,
    shape: GridShape,
    order: Sequence[StepOrder],
    head: str,
    streams: bool = False,
    apart: bool = True,
) -> str:
    """PTX of kernel NAME, whose only argument is the addresses of `pointers_of` with `params` memories.

    order: dependency of each step. head: first lines of a program's PTX. streams: constants exceed the L2 cache, so
    large ones are streamed and code stays cached. apart: threads of a warp may arrive separately at a barrier, which
    costs 0 to 11 % of a run (H100). Without `apart` most kernels run, but some crash: cl/programs/kernel_trials.py
    tests each kernel.
    """
    parts: list[str] = []
    uses: dict[object, list[int]] = {}
    for i, step in enumerate(steps):
        uses.setdefault(code_key(step), []).append(i)
    barriers = first_group = registers = 0
    first_groups: list[int] = []  # by step: number of the group with its first work-group
    for i, step in enumerate(steps):
        waits, users = i > 0 and order[i].waits, uses[code_key(step)]
        early = begins_early(step) and any(order[j].waits for j in users if j)
        if waits:
            barriers += 1
            first_group = 0
        elif order[i].follows >= 0:
            first_group = first_groups[order[i].follows]
        first_groups.append(first_group)
        if early:
            parts.append(f"\tmov.u32 %one_wanted, {barriers * shape.groups if waits else 0};\n")
        if waits:
            parts.append(_ARRIVE)
        elif i:
            parts.append(f"\t{_ALL}\n")
        if waits and not early:
            parts.append(_WAIT.format(i=i, wanted=barriers * shape.groups))
        memory = memory_of(step)
        if len(users) == 1:
            parts.append(_step(step, i, shape, first_group, (), early, streams))
        else:
            registers = max(registers, len(memory))
            parts.extend(f"\t{pointer_text(f'%one_at{j}', a)}\n" for j, a in enumerate(memory))
            parts.append(f"\tmov.u32 %one_use, {users.index(i)};\n\tmov.u32 %one_begun, {first_group};\n")
            parts.extend(_shared(step, i, shape, users, early, streams))
        first_group = (first_group + math.prod(step.groups)) % shape.groups
    is_dynamic = any(step.is_dynamic for step in steps)
    pool = max(slots_of(s, shape) * shared_bytes(s) for s in steps)
    text = _PROGRAM.format(
        head=head if pool <= SHARED else _for_hopper(head),
        name=NAME,
        nbytes=8 * len(pointers_of(0, 0, [0] * params)),
        sync=place_in_block(SYNC),
        table=f"\tld.param.u64 %one_table, {place_in_block(TABLE)};\n" if is_dynamic else "",
        threads=shape.threads,
        pool=max(pool, 16),
        registers="".join(f"\t.reg .b64 %one_at{j};\n" for j in range(registers)),
        body="".join(parts),
        leave=_LEAVE.format(groups=shape.groups),
    )
    return text if apart else text.replace("\tbarrier.", "\tbar.")


def _shared(
    step: LinkedStep, i: int, shape: GridShape, users: Sequence[int], early: bool, streams: bool
) -> Iterator[str]:
    """Code of the steps `users` at the first of them, and a branch to it at the others."""
    if users[0] == i:
        yield f"ONE_BODY_{i}:\n"
        yield _step(step, i, shape, None, [f"%one_at{j}" for j in range(len(memory_of(step)))], early, streams)
        backs = ", ".join(f"ONE_BACK_{j}" for j in users)
        yield f"\t{_ALL}\nONE_USES_{i}: .branchtargets {backs};\n\tbrx.idx %one_use, ONE_USES_{i};\n"
    else:
        yield f"\tbra ONE_BODY_{users[0]};\n"
    yield f"ONE_BACK_{i}:\n"


_PROGRAM = """{head}
.shared .align 128 .b8 linked_pool[{pool}];
.entry {name}(
	.param .align 8 .b8 linked_memory[{nbytes}]
)
.reqntid {threads}, 1, 1
.minnctapersm 1
{{
	.reg .b32 %one_tid, %one_cta, %one_late, %one_looks, %one_seen, %one_zero, %one_use, %one_begun, %one_wanted;
	.reg .b64 %one_sync, %one_table;
	.reg .pred %one_first, %one_failed, %one_q;
{registers}	mov.u32 %one_tid, %tid.x;
	mov.u32 %one_cta, %ctaid.x;
	ld.param.u64 %one_sync, {sync};
{table}	setp.eq.u32 %one_first, %one_tid, 0;
{body}{leave}
ONE_END:
	ret;
}}
"""

# The threads of a warp may reach the end of a step apart, if they belong to two work-groups or some return early. `bar`
# requires that a warp arrives as a whole, and ptxas reconverges its threads before. But if steps share code, some
# reconverge too late: the barrier is then an illegal instruction, which kills the context. `barrier` requires nothing
# (PTX ISA 9.0); `link` states its cost.
_ALL = "barrier.sync 0;"

# Grid barrier: the first thread of a group reports the arrival after all its threads have finished the earlier steps.
# The threads may then do independent work. They see the results of other groups after the first thread has seen all
# arrivals. The barrier at the end distributes the timeout flag.
_ARRIVE = f"""	{_ALL} // meeting
	@%one_first red.release.gpu.global.add.u32 [%one_sync+{4 * ARRIVED}], 1;
"""
_WAIT = f"""	setp.ne.u32 %one_failed, %one_tid, %one_tid;
	@!%one_first bra ONE_MET_{{i}};
	mov.u32 %one_looks, 0;
ONE_LOOK_{{i}}:
	ld.acquire.gpu.global.u32 %one_seen, [%one_sync+{4 * ARRIVED}];
	setp.ge.u32 %one_q, %one_seen, {{wanted}};
	@%one_q bra ONE_MET_{{i}};
	add.u32 %one_looks, %one_looks, 1;
	and.b32 %one_late, %one_looks, 1023;
	setp.ne.u32 %one_q, %one_late, 0;
	@%one_q bra ONE_LOOK_{{i}};
	ld.relaxed.gpu.global.u32 %one_late, [%one_sync+{4 * TIMED_OUT}];
	setp.ne.u32 %one_failed, %one_late, 0;
	@%one_failed bra ONE_MET_{{i}};
	setp.lt.u32 %one_q, %one_looks, {SPIN_LIMIT};
	@%one_q bra ONE_LOOK_{{i}};
	setp.eq.u32 %one_failed, %one_tid, %one_tid;
	red.relaxed.gpu.global.add.u32 [%one_sync+{4 * TIMED_OUT}], 1;
ONE_MET_{{i}}:
	barrier.red.or.pred %one_q, 0, %one_failed;
	@%one_q bra ONE_END;
"""

# Wait in a work-group's code, once per slot; and for threads without a slot or a work-group.
_AWAIT = """
	setp.eq.u32 %one_q, %one_wanted, 0;
	@%one_q bra ONE_GO_{i};
{meet}	mov.u32 %one_wanted, 0;
ONE_GO_{i}:
"""
_APART = """	bra ONE_DONE_{i};
ONE_APART_{i}:
	setp.eq.u32 %one_q, %one_wanted, 0;
	@%one_q bra ONE_DONE_{i};
{meet}"""

# The last group to leave resets the counters for the next run.
_LEAVE = f"""	{_ALL}
	@!%one_first bra ONE_END;
	atom.relaxed.gpu.global.add.u32 %one_seen, [%one_sync+{4 * LEFT}], 1;
	setp.ne.u32 %one_q, %one_seen, {{groups}}-1;
	@%one_q bra ONE_END;
	mov.u32 %one_zero, 0;
	st.relaxed.gpu.global.u32 [%one_sync+{4 * LEFT}], %one_zero;
	st.relaxed.gpu.global.u32 [%one_sync+{4 * ARRIVED}], %one_zero;
"""

_BLOCK = """{{ // step {i}
	.reg .b32 %my_seat, %my_item, %my_tx, %my_ty, %my_tz, %my_gx, %my_gy, %my_gz, %my_v, %my_at, %my_bar;
	.reg .b32 %my_nx, %my_ny, %my_nz, %my_total;
	.reg .b64 %my_at64;
	.reg .pred %my_p;
{begin}
ONE_AGAIN_{i}:
{numbers}
{{
{body}
}}
ONE_NEXT_{i}:
{again}
{apart}ONE_DONE_{i}:
}}
"""


def _step(
    step: LinkedStep,
    i: int,
    shape: GridShape,
    first_group: int | None,
    memory: Sequence[str],
    early: bool,
    streams: bool,
) -> str:
    """PTX of a step.

    first_group: number of the group that runs the step's first work-group, since concurrent steps use other groups;
    None if %one_begun has the number. memory, streams: as for `body_text`. early: the step's own code waits, if
    %one_wanted is not 0.
    """
    items, total, slots, nbytes = (
        math.prod(step.group),
        math.prod(step.groups),
        slots_of(step, shape),
        shared_bytes(step),
    )
    is_dynamic, sizes = step.count_offset >= 0, [str(n) for n in step.groups]
    begin, end = [], str(total)
    if is_dynamic:
        sizes, end = ["%my_nx", "%my_ny", "%my_nz"], "%my_total"
        begin += [f"ld.global.u32 {n}, [%one_table+{step.count_offset + 4 * k}];" for k, n in enumerate(sizes)]
        begin += ["mul.lo.u32 %my_total, %my_nx, %my_ny;", "mul.lo.u32 %my_total, %my_total, %my_nz;"]
    away = f"ONE_APART_{i}" if early else f"ONE_DONE_{i}"
    leave = f"setp.ge.u32 %my_p, %my_v, {end};"
    begin += ["mov.u32 %my_seat, 0;"]
    if items < shape.threads:
        begin[-1:] = [f"div.u32 %my_seat, %one_tid, {items};", f"setp.ge.u32 %my_p, %my_seat, {slots};"]
        begin += [f"@%my_p bra {away};"]
    begin += ["mov.u32 %my_v, %one_cta;"]
    if first_group is None:
        begin += [f"add.u32 %my_v, %my_v, {shape.groups};", "sub.u32 %my_v, %my_v, %one_begun;"]
        begin += [f"rem.u32 %my_v, %my_v, {shape.groups};"]
    elif first_group:
        begin += [f"add.u32 %my_v, %my_v, {shape.groups - first_group};", f"rem.u32 %my_v, %my_v, {shape.groups};"]
    begin += [f"mad.lo.u32 %my_v, %my_seat, {shape.groups}, %my_v;", leave, f"@%my_p bra {away};"]
    begin += [f"mul.lo.u32 %my_at, %my_seat, {items};", "sub.u32 %my_item, %one_tid, %my_at;"]
    begin += _unflatten("%my_item", ("%my_tx", "%my_ty", "%my_tz"), [str(n) for n in step.group])
    if items < WARP and step.entry.has_barrier:  # a part of a warp, as bit mask
        begin += [f"and.b32 %my_bar, %my_at, {WARP - 1};", f"shl.b32 %my_bar, {(1 << items) - 1}, %my_bar;"]
    else:
        begin += ["add.u32 %my_bar, %my_seat, 1;"]
    begin += [f"mul.lo.u32 %my_at, %my_seat, {nbytes};", "cvt.u64.u32 %my_at64, %my_at;"]
    again = []
    if is_dynamic or total > slots * shape.groups:
        again = [f"add.u32 %my_v, %my_v, {slots * shape.groups};", leave, f"@%my_p bra ONE_DONE_{i};"]
        if nbytes:
            again += [barrier(items, "barrier")]
        again += [f"bra ONE_AGAIN_{i};"]
    numbers = _unflatten("%my_v", ("%my_gx", "%my_gy", "%my_gz"), sizes)
    begin, numbers, again = (["\t" + line for line in lines] for lines in (begin, numbers, again))
    return _BLOCK.format(
        i=i,
        begin="\n".join(begin),
        numbers="\n".join(numbers),
        body=body_text(step, i, memory, _AWAIT.format(i=i, meet=_wait(f"{i}_IN")) if early else "", streams),
        apart=_APART.format(i=i, meet=_wait(f"{i}_APART")) if early else "",
        again="\n".join(again),
    )


def _wait(label: str) -> str:
    """PTX of a wait for %one_wanted arrivals."""
    return _WAIT.format(i=label, wanted="%one_wanted")


def _unflatten(number: str, names: Sequence[str], sizes: Sequence[str]) -> list[str]:
    """PTX that splits a linear index into x, y, z; sizes: numbers or registers."""
    nx, ny, nz = sizes
    x, y, z = names
    if ny == nz == "1":
        return [f"mov.u32 {x}, {number};", f"mov.u32 {y}, 0;", f"mov.u32 {z}, 0;"]
    found = [f"rem.u32 {x}, {number}, {nx};", f"div.u32 {y}, {number}, {nx};"]
    if nz == "1":
        return [*found, f"mov.u32 {z}, 0;"]
    return [*found, f"div.u32 {z}, {y}, {ny};", f"rem.u32 {y}, {y}, {ny};"]


_HEAD = re.compile(
    r"^\.version (?P<version>[\d.]+)\n\.target sm_(?P<target>\d+)[^\n]*\n\.address_size 64$", re.MULTILINE
)
_FIRST_TARGET = 70  # with independent thread scheduling


def _for_hopper(head: str) -> str:
    """The head of a program with more than SHARED bytes of shared memory (retarget_sm90a.py)."""
    return re.sub(r"(\.target sm_90)\b(?!a)", r"\1a", head)


def head_of(text: str) -> str | None:
    """First lines of the PTX `text`; None if its target does not support the grid barrier."""
    found = _HEAD.search(text)
    return None if found is None or int(found["target"]) < _FIRST_TARGET else found[0]
