"""One kernel of PTX that computes launches in turn: all its groups walk from step to step, and meet between two steps
of which one needs the other.

Numbers that a launch is given become constants, by which the driver's compiler divides faster, but for those that are
others in each run, which are read from a table; memory stays a parameter. Steps that differ in their memory alone share
their code: instructions that run for the first time come from far away. A step whose kernel says where it begins to
read what others wrote meets them there: its constants are on their way before. A group of the linked kernel has
*seats*: work-groups of a step side by side, each with a barrier and shared memory of its own. No more groups may run
than the device holds at once, and who waits in vain for another says so and leaves, as all the others then do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .inline_kernel import SYNC, TABLE, barrier, body_text, place_in_block, pointer_text, pointers_of
from .step_dependencies import SHARED, WARP, LinkedStep, StepOrder, begins_early, memory_of, shape_of, shared_bytes

BARRIERS = 16
"""That a group has, the first for all of it."""
PATIENCE = 1 << 21
"""Looks at the counter before a group waits in vain: 0.3 s on an H200."""
NAME = "linked_steps"
LINE = 32
"""Words of 32 bits from one counter to the next."""
FAILED, COME, LEFT = 0, LINE, 2 * LINE
"""Words of the memory where groups meet: whether somebody waited in vain, how many came, and how many left."""
SYNC_BYTES = 3 * 4 * LINE


@dataclass(frozen=True)
class Shape:
    """groups: of the linked kernel, each of `threads` and with up to `shared` bytes of shared memory."""

    groups: int
    threads: int
    shared: int = SHARED


def refusal(step: LinkedStep, shape: Shape) -> str:
    """Why a step cannot be part of a linked kernel of that shape; '' if it can."""
    items = math.prod(step.group)
    if items > shape.threads:
        return f"its work-groups have {items} work-items, more than {shape.threads}"
    if items % WARP and (step.entry.has_warp_operations or (step.entry.meets and WARP % items)):
        return f"work-items meet in groups of {items}, which are no whole warps"
    if shared_bytes(step) > shape.shared:
        return f"it needs {shared_bytes(step)} bytes of local memory"
    return ""


def slots_of(step: LinkedStep, shape: Shape) -> int:
    """Work-groups of a step that run side by side in a group: no more than have something to do."""
    items, room = math.prod(step.group), shared_bytes(step)
    most = min(shape.threads // items, -(-math.prod(step.groups) // shape.groups))
    if step.entry.meets and items >= WARP:
        most = min(most, BARRIERS - 1)
    return max(1, min(most, shape.shared // room) if room else most)


def link(
    steps: Sequence[LinkedStep],
    params: int,
    shape: Shape,
    turns: Sequence[StepOrder],
    head: str,
    streams: bool = False,
    apart: bool = True,
) -> str:
    """The program of kernel NAME, whose one argument is the addresses of `pointers_of` with `params` memories.

    turns: of each step. head: what a program's text begins with.
    streams: constants are more than the second level keeps, so that large ones pass by, and code stays there.
    apart: threads of a warp may come apart to a barrier, which costs 0 to 11 % of a run (measured on an H100). Without,
    most texts run, but some do not survive: only a trial tells (cl/programs/kernel_trials.py).
    """
    parts: list[str] = []
    uses: dict[object, list[int]] = {}
    for i, step in enumerate(steps):
        uses.setdefault(shape_of(step), []).append(i)
    met = begun = held = 0
    began: list[int] = []  # of each step: number of the group that takes its first work-group
    for i, step in enumerate(steps):
        meets, users = i > 0 and turns[i].waits, uses[shape_of(step)]
        early = begins_early(step) and any(turns[j].waits for j in users if j)
        if meets:
            met += 1
            begun = 0
        elif turns[i].follows >= 0:
            begun = began[turns[i].follows]
        began.append(begun)
        if early:
            parts.append(f"\tmov.u32 %one_wanted, {met * shape.groups if meets else 0};\n")
        if meets:
            parts.append(_COME)
        elif i:
            parts.append(f"\t{_ALL}\n")
        if meets and not early:
            parts.append(_MEET.format(i=i, wanted=met * shape.groups))
        memory = memory_of(step)
        if len(users) == 1:
            parts.append(_step(step, i, shape, begun, (), early, streams))
        else:
            held = max(held, len(memory))
            parts.extend(f"\t{pointer_text(f'%one_at{j}', a)}\n" for j, a in enumerate(memory))
            parts.append(f"\tmov.u32 %one_use, {users.index(i)};\n\tmov.u32 %one_begun, {begun};\n")
            parts.extend(_shared(step, i, shape, users, early, streams))
        begun = (begun + math.prod(step.groups)) % shape.groups
    moves = any(step.moves for step in steps)
    pool = max(slots_of(s, shape) * shared_bytes(s) for s in steps)
    text = _PROGRAM.format(
        head=head if pool <= SHARED else _for_hopper(head),
        name=NAME,
        nbytes=8 * len(pointers_of(0, 0, [0] * params)),
        sync=place_in_block(SYNC),
        table=f"\tld.param.u64 %one_table, {place_in_block(TABLE)};\n" if moves else "",
        threads=shape.threads,
        pool=max(pool, 16),
        held="".join(f"\t.reg .b64 %one_at{j};\n" for j in range(held)),
        body="".join(parts),
        leave=_LEAVE.format(groups=shape.groups),
    )
    return text if apart else text.replace("\tbarrier.", "\tbar.")


def _shared(step: LinkedStep, i: int, shape: Shape, users: Sequence[int], early: bool, streams: bool) -> Iterator[str]:
    """The code of steps `users`, where the first of them stands, and the way to it where others do."""
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
{held}	mov.u32 %one_tid, %tid.x;
	mov.u32 %one_cta, %ctaid.x;
	ld.param.u64 %one_sync, {sync};
{table}	setp.eq.u32 %one_first, %one_tid, 0;
{body}{leave}
ONE_END:
	ret;
}}
"""

# The threads of a warp may come to the end of a step apart: the warp has threads of two work-groups, or the kernel lets
# some return early. `bar` states that a warp comes as a whole, and ptxas brings its threads together before. But where
# steps share code, it does so too late for some: the device then takes the barrier for an illegal instruction, and the
# process loses its context. `barrier` states nothing (PTX ISA 9.0); what it costs is said in `link`.
_ALL = "barrier.sync 0;"

# All of a group are done with the steps before it when its first thread tells that it has come. They then go on to what
# they may do before the others have come, and see what those wrote once the first thread knows that they have. The
# barrier that ends a meeting tells all of them whether somebody waited in vain.
_COME = f"""	{_ALL} // meeting
	@%one_first red.release.gpu.global.add.u32 [%one_sync+{4 * COME}], 1;
"""
_MEET = f"""	setp.ne.u32 %one_failed, %one_tid, %one_tid;
	@!%one_first bra ONE_MET_{{i}};
	mov.u32 %one_looks, 0;
ONE_LOOK_{{i}}:
	ld.acquire.gpu.global.u32 %one_seen, [%one_sync+{4 * COME}];
	setp.ge.u32 %one_q, %one_seen, {{wanted}};
	@%one_q bra ONE_MET_{{i}};
	add.u32 %one_looks, %one_looks, 1;
	and.b32 %one_late, %one_looks, 1023;
	setp.ne.u32 %one_q, %one_late, 0;
	@%one_q bra ONE_LOOK_{{i}};
	ld.relaxed.gpu.global.u32 %one_late, [%one_sync+{4 * FAILED}];
	setp.ne.u32 %one_failed, %one_late, 0;
	@%one_failed bra ONE_MET_{{i}};
	setp.lt.u32 %one_q, %one_looks, {PATIENCE};
	@%one_q bra ONE_LOOK_{{i}};
	setp.eq.u32 %one_failed, %one_tid, %one_tid;
	red.relaxed.gpu.global.add.u32 [%one_sync+{4 * FAILED}], 1;
ONE_MET_{{i}}:
	barrier.red.or.pred %one_q, 0, %one_failed;
	@%one_q bra ONE_END;
"""

# In the code of a work-group, whose seat awaits the others once; and of threads that have no seat, or none to compute.
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

# Whoever leaves last sets the counters back for the next run.
_LEAVE = f"""	{_ALL}
	@!%one_first bra ONE_END;
	atom.relaxed.gpu.global.add.u32 %one_seen, [%one_sync+{4 * LEFT}], 1;
	setp.ne.u32 %one_q, %one_seen, {{groups}}-1;
	@%one_q bra ONE_END;
	mov.u32 %one_zero, 0;
	st.relaxed.gpu.global.u32 [%one_sync+{4 * LEFT}], %one_zero;
	st.relaxed.gpu.global.u32 [%one_sync+{4 * COME}], %one_zero;
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
    step: LinkedStep, i: int, shape: Shape, begun: int | None, memory: Sequence[str], early: bool, streams: bool
) -> str:
    """A step's code.

    begun: number of the group that begins, for steps beside it keep others busy; None where %one_begun has it. memory:
    as body_text takes it, and streams. early: it meets the other groups itself, if %one_wanted is not 0.
    """
    items, total, seats, room = math.prod(step.group), math.prod(step.groups), slots_of(step, shape), shared_bytes(step)
    moves, sizes = step.counts >= 0, [str(n) for n in step.groups]
    begin, end = [], str(total)
    if moves:
        sizes, end = ["%my_nx", "%my_ny", "%my_nz"], "%my_total"
        begin += [f"ld.global.u32 {n}, [%one_table+{step.counts + 4 * k}];" for k, n in enumerate(sizes)]
        begin += ["mul.lo.u32 %my_total, %my_nx, %my_ny;", "mul.lo.u32 %my_total, %my_total, %my_nz;"]
    away = f"ONE_APART_{i}" if early else f"ONE_DONE_{i}"
    leave = f"setp.ge.u32 %my_p, %my_v, {end};"
    begin += ["mov.u32 %my_seat, 0;"]
    if items < shape.threads:
        begin[-1:] = [f"div.u32 %my_seat, %one_tid, {items};", f"setp.ge.u32 %my_p, %my_seat, {seats};"]
        begin += [f"@%my_p bra {away};"]
    begin += ["mov.u32 %my_v, %one_cta;"]
    if begun is None:
        begin += [f"add.u32 %my_v, %my_v, {shape.groups};", "sub.u32 %my_v, %my_v, %one_begun;"]
        begin += [f"rem.u32 %my_v, %my_v, {shape.groups};"]
    elif begun:
        begin += [f"add.u32 %my_v, %my_v, {shape.groups - begun};", f"rem.u32 %my_v, %my_v, {shape.groups};"]
    begin += [f"mad.lo.u32 %my_v, %my_seat, {shape.groups}, %my_v;", leave, f"@%my_p bra {away};"]
    begin += [f"mul.lo.u32 %my_at, %my_seat, {items};", "sub.u32 %my_item, %one_tid, %my_at;"]
    begin += _divided("%my_item", ("%my_tx", "%my_ty", "%my_tz"), [str(n) for n in step.group])
    if items < WARP and step.entry.meets:  # a part of a warp, told by a bit for each of its threads
        begin += [f"and.b32 %my_bar, %my_at, {WARP - 1};", f"shl.b32 %my_bar, {(1 << items) - 1}, %my_bar;"]
    else:
        begin += ["add.u32 %my_bar, %my_seat, 1;"]
    begin += [f"mul.lo.u32 %my_at, %my_seat, {room};", "cvt.u64.u32 %my_at64, %my_at;"]
    again = []
    if moves or total > seats * shape.groups:
        again = [f"add.u32 %my_v, %my_v, {seats * shape.groups};", leave, f"@%my_p bra ONE_DONE_{i};"]
        if room:
            again += [barrier(items, "barrier")]
        again += [f"bra ONE_AGAIN_{i};"]
    numbers = _divided("%my_v", ("%my_gx", "%my_gy", "%my_gz"), sizes)
    begin, numbers, again = (["\t" + line for line in lines] for lines in (begin, numbers, again))
    return _BLOCK.format(
        i=i,
        begin="\n".join(begin),
        numbers="\n".join(numbers),
        body=body_text(step, i, memory, _AWAIT.format(i=i, meet=_meet(f"{i}_IN")) if early else "", streams),
        apart=_APART.format(i=i, meet=_meet(f"{i}_APART")) if early else "",
        again="\n".join(again),
    )


def _meet(label: str) -> str:
    """Code of a meeting of as many arrivals as %one_wanted says."""
    return _MEET.format(i=label, wanted="%one_wanted")


def _divided(number: str, names: Sequence[str], sizes: Sequence[str]) -> list[str]:
    """Instructions that take a number apart into places along x, y and z, of which there are `sizes`, or registers."""
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
_FIRST_TARGET = 70  # whose threads wait for each other one by one


def _for_hopper(head: str) -> str:
    """The head of a program that may have more than SHARED bytes of shared memory (hopper.py)."""
    return re.sub(r"(\.target sm_90)\b(?!a)", r"\1a", head)


def head_of(text: str) -> str | None:
    """What the PTX `text` of a program begins with; None where groups cannot meet by it."""
    found = _HEAD.search(text)
    return None if found is None or int(found["target"]) < _FIRST_TARGET else found[0]
