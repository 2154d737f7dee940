"""Launches linked into one kernel compute what they compute one by one. tests/helpers/ptx_machine.py runs it."""

from __future__ import annotations

import math
import re
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opalite.ptx.inline_kernel import place_in_block
from opalite.ptx.linked_launch import ARRIVED, LEFT, TIMED_OUT, pointers_of
from opalite.ptx.linked_launch import GridShape as Shape
from opalite.ptx.parse_kernel import PtxKernelError, parse_kernel
from opalite.ptx.persistent_kernel import SPIN_LIMIT, head_of, link, refusal, slots_of
from opalite.ptx.step_dependencies import (
    STREAMED,
    DynamicNumber,
    LinkedStep,
    Memory,
    Number,
    StepOrder,
    argument_mismatch,
    begins_early,
    find_step_order,
)

from ...helpers.ptx_kernels import HEAD, SCALE, WEIGH, turn
from ...helpers.ptx_machine import Machine

SHAPE = Shape(groups=3, threads=96)
BASE = 1 << 20  # of a buffer's address, times its number and 1
SYNC = BASE // 2
N = 1000
Buffers = dict[int, Any]


def scale(source: int, target: int, factor: float, items: int = 32, n: int = N) -> LinkedStep:
    numbers = Number(struct.pack("<f", factor)), Number(struct.pack("<i", n))
    args: tuple[Number | Memory, ...] = (*_memory(source, target), *numbers)
    return LinkedStep(parse_kernel(SCALE, "scale"), args, (math.ceil(n / items), 1, 1), (items, 1, 1))


def turned(source: int, target: int, items: int, groups: tuple[int, int] = (5, 4)) -> LinkedStep:
    return LinkedStep(parse_kernel(turn(items), "turn"), _memory(source, target), (*groups, 1), (items, 1, 1))


def weighed(source: int, weights: int, target: int, items: int = 32, groups: int = 20) -> LinkedStep:
    x, w, y = _memory(source, weights, target)
    return LinkedStep(parse_kernel(WEIGH, "weigh"), (x, replace(w, is_constant=True), y), (groups, 1, 1), (items, 1, 1))


def _memory(*buffers: int) -> tuple[Memory, ...]:
    return tuple(Memory(b, b, 0, 4 * N) for b in buffers)


def given(memory: Sequence[int], table: int = 0) -> dict[str, int]:
    """The addresses of a linked kernel, by where it finds them."""
    return {place_in_block(i).strip("[]"): at for i, at in enumerate(pointers_of(SYNC, table, memory))}


def run(steps: Sequence[LinkedStep], buffers: Buffers, shape: Shape = SHAPE, missing: int = 0) -> tuple[Buffers, Any]:
    """What `buffers` hold after the linked kernel has run, and its words."""
    text = link(steps, len(buffers), shape, find_step_order(steps), HEAD)
    memory: dict[Any, Any] = {}
    for b, array in buffers.items():
        memory.update((BASE * (b + 1) + 4 * i, v) for i, v in enumerate(array))
    params = given([BASE * (b + 1) for b in buffers])
    Machine(text.replace(f"{SPIN_LIMIT};", "1000;")).run(params, memory, shape.groups - missing)
    after = {
        b: np.array([memory[BASE * (b + 1) + 4 * i] for i in range(len(a))], np.float32) for b, a in buffers.items()
    }
    return after, {word: memory.get(SYNC + 4 * word, 0) for word in (TIMED_OUT, ARRIVED, LEFT)}


def waits(steps: Sequence[LinkedStep]) -> list[bool]:
    return [turn.waits for turn in find_step_order(steps)]


def noise(n: int = N) -> Any:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("items", [32, 20, 96, 7])
def test_a_chain(items: int) -> None:
    x = noise()
    steps = [scale(0, 1, 3.0, items), scale(1, 2, 0.5, items), scale(2, 0, -2.0, items)]
    after, words = run(steps, {0: x, 1: x * 0, 2: x * 0})
    np.testing.assert_array_equal(after[0], x * np.float32(3) * np.float32(0.5) * np.float32(-2))
    assert set(words.values()) == {0}, "the counters are set back for the next run"


@pytest.mark.parametrize("items", [32, 96, 4, 1])
def test_work_items_that_meet(items: int) -> None:
    n = 20 * items
    x = noise(n)
    after, _ = run([turned(0, 1, items), turned(1, 2, items), scale(2, 0, 2.0, n=n)], {0: x, 1: x * 0, 2: x * 0})
    np.testing.assert_array_equal(after[1].reshape(-1, items), x.reshape(-1, items)[:, ::-1])
    np.testing.assert_array_equal(after[0], x * np.float32(2))


@pytest.mark.parametrize("items", [32, 4])
def test_a_place_in_shared_memory_that_is_always_the_same(items: int) -> None:
    n = 20 * items
    x = noise(n)
    text = turn(items).replace("ld.shared.f32 \t%f2, [%rd9]", "ld.shared.f32 \t%f2, [turn_$_seen+8]")
    third = LinkedStep(parse_kernel(text, "turn"), _memory(0, 1), (5, 4, 1), (items, 1, 1))
    moved = text.replace("[turn_$_seen+8]", "[%rd9]").replace(
        "%rd9, %rd5, %rd8;", "%rd8, %rd5, %rd8;\n\tmov.u64 \t%rd9, turn_$_seen+8;"
    )
    for form in (text, moved):
        after, _ = run([replace(third, entry=parse_kernel(form, "turn"))], {0: x, 1: x * 0})
        np.testing.assert_array_equal(after[1].reshape(-1, items), np.repeat(x.reshape(-1, items)[:, 2:3], items, 1))
    own = text.replace("\tret;", "\tmov.u64 \t%rd9, turn_$_seen-8;\n\tret;")
    with pytest.raises(PtxKernelError, match=r"address of turn_\$_seen in an unsupported way"):
        run([replace(third, entry=parse_kernel(own, "turn"))], {0: x, 1: x * 0})


def test_steps_of_equal_shape_share_their_code() -> None:
    x = noise()
    steps = [scale(0, 1, 3.0), turned(1, 2, 32), scale(2, 0, 3.0), turned(0, 1, 32), scale(1, 2, 3.0)]
    text = link(steps, 3, SHAPE, find_step_order(steps), HEAD)
    assert text.count("// step") == 2
    after, _ = run(steps, {0: x, 1: x * 0, 2: x * 0})
    turns = np.concatenate([x[:640].reshape(-1, 32)[:, ::-1].ravel()])
    first = np.float32(3) * turns
    np.testing.assert_array_equal(after[1][:640], (first * np.float32(3)).reshape(-1, 32)[:, ::-1].ravel())


@pytest.mark.parametrize("items", [32, 40])
@pytest.mark.parametrize("like", [1, 2])
def test_warps_come_apart_to_the_barriers_of_all(items: int, like: int) -> None:
    """Work-groups end within a warp, and let work-items return: the machine looks for barriers of whole warps."""
    steps = [scale(i, i + 1, 0.5, items, N - 3) for i in range(like)]
    after, words = run(steps, {0: noise(), **{i + 1: np.zeros(N, np.float32) for i in range(like)}})
    np.testing.assert_array_equal(after[like][: N - 3], (noise() * np.float32(0.5**like))[: N - 3])
    assert not any(words.values())
    turns, memories = find_step_order(steps), like + 1
    faster = link(steps, memories, SHAPE, turns, HEAD, apart=False)
    assert faster == link(steps, memories, SHAPE, turns, HEAD).replace("barrier.", "bar.")
    assert "barrier." not in faster


def test_independent_steps_run_beside_each_other() -> None:
    x = noise()
    steps = [scale(0, 1, 3.0), scale(0, 2, 5.0), turned(0, 3, 32), scale(2, 0, 7.0)]
    assert waits(steps) == [False, False, False, True], "x is read by those before the one that writes it"
    after, _ = run(steps, {0: x, 1: x * 0, 2: x * 0, 3: x * 0})
    np.testing.assert_array_equal(after[1], x * np.float32(3))
    np.testing.assert_array_equal(after[0], x * np.float32(5) * np.float32(7))
    np.testing.assert_array_equal(after[3][:640].reshape(-1, 32), x[:640].reshape(-1, 32)[:, ::-1])


def gated(source: int, target: int, partition: int, groups: int = 20, **more: Any) -> LinkedStep:
    """A step whose work-groups have their own part of x and y."""
    step = replace(weighed(source, 1, target, 32, groups), partition=partition, **more)
    own = tuple(replace(a, is_own=not a.is_constant) if isinstance(a, Memory) else a for a in step.args)
    return replace(step, args=own)


@pytest.mark.parametrize("groups", [20, 4, 2, 1])
def test_a_group_goes_on_with_what_it_wrote(groups: int) -> None:
    n = 32 * groups
    x, w = noise(n), noise(n + 1)[:n]
    steps = [scale(0, 2, 3.0, n=n), gated(0, 3, 7, groups), gated(3, 4, 7, groups), gated(4, 5, 7, groups)]
    steps += [scale(2, 6, 5.0, n=n), scale(5, 0, 1.0, n=n)]
    found = find_step_order(steps)
    assert [t.waits for t in found] == [False, False, False, False, True, False], "scale reads what all have written"
    assert [t.follows for t in found] == [-1, -1, 1, 1, -1, -1]
    text = link(steps, 7, SHAPE, found, HEAD)
    assert text.count("// meeting") == 1
    after, words = run(steps, {0: x, 1: w, **dict.fromkeys(range(2, 7), x * 0)})
    np.testing.assert_array_equal(after[5], x * w * w * w)
    np.testing.assert_array_equal(after[0], after[5])
    np.testing.assert_array_equal(after[6], x * np.float32(3) * np.float32(5))
    assert set(words.values()) == {0}


def test_what_is_not_a_groups_own_is_waited_for() -> None:
    before, after = gated(0, 2, 7), gated(2, 3, 7)
    assert waits([before, after]) == [False, False]
    plain = replace(after, args=tuple(replace(a, is_own=False) for a in after.args if isinstance(a, Memory)))
    part = replace(after, args=tuple(replace(a, last=a.last - 4) for a in after.args if isinstance(a, Memory)))
    others = [plain, part, replace(after, partition=8), replace(after, partition=-1), replace(after, groups=(19, 1, 1))]
    changed = after.entry.body.replace("ret;", "red.global.add.u32 [%rd1], 1;\n\tret;")
    others.append(replace(after, entry=replace(after.entry, body=changed)))
    for other in others:
        assert waits([before, other]) == [False, True]
    assert waits([replace(before, partition=-1), replace(after, partition=-1)]) == [False, True]
    steps = [gated(0, 2, 7, 2), gated(0, 3, 7, 2), gated(2, 3, 7, 2)]
    assert waits(steps) == [False, False, True], "of two steps, which begin with different groups"


@pytest.mark.parametrize("items, groups", [(32, 20), (96, 2), (64, 7), (32, 1), (16, 20)])
def test_steps_that_begin_early(items: int, groups: int) -> None:
    """They meet the other groups on their own, also where a group has seats without work, or several turns."""
    n = items * groups
    x, w = noise(n), noise(n + 1)[:n]
    steps = [scale(0, 2, 3.0, n=n), weighed(2, 1, 3, items, groups), weighed(3, 1, 4, items, groups)]
    steps += [weighed(3, 1, 5, items, groups), scale(4, 2, 0.5, n=n)]
    assert waits(steps) == [False, True, True, False, True]
    text = link(steps, 6, SHAPE, find_step_order(steps), HEAD)
    assert text.count("// step") == 3, "those of equal shape share code beside each other, too"
    own = [part for part in text.split("// step") if "linked-await" not in part and "ONE_GO_1" in part]
    assert len(own) == (items % 32 == 0), "where they are whole warps"
    after, words = run(steps, {0: x, 1: w, **dict.fromkeys(range(2, 6), x * 0)})
    once = x * np.float32(3) * w
    np.testing.assert_array_equal(after[3], once)
    np.testing.assert_array_equal(after[4], once * w)
    np.testing.assert_array_equal(after[5], once * w)
    np.testing.assert_array_equal(after[2], once * w * np.float32(0.5))
    assert set(words.values()) == {0}


def test_parts_of_one_buffer() -> None:
    entry, whole = parse_kernel(SCALE, "scale"), 0
    numbers = (Number(struct.pack("<f", 2.0)), Number(struct.pack("<i", 10)))

    def part(first: int, target: int) -> LinkedStep:
        mine, its = Memory(0, whole, first, first + 40), Memory(1, whole, target, target + 40)
        return LinkedStep(entry, (mine, its, *numbers), (1, 1, 1), (32, 1, 1))

    assert waits([part(0, 40), part(80, 120)]) == [False, False]
    assert waits([part(0, 40), part(0, 80)]) == [False, False], "what is only read"
    assert waits([part(0, 40), part(76, 120)]) == [False, True], "reads four bytes of what was written"
    assert waits([part(0, 40), part(120, 79)]) == [False, True]


@pytest.mark.parametrize("times", [1, 2])
def test_memory_from_an_offset_on(times: int) -> None:
    entry, n = parse_kernel(SCALE, "scale"), 100
    numbers = (Number(struct.pack("<f", 2.0)), Number(struct.pack("<i", n)))
    x = noise(3 * n)
    steps = []
    for i in range(times):
        source, target = (Memory(0, 0, 4 * n * k, 4 * n * (k + 1)) for k in (i, i + 1))
        steps.append(LinkedStep(entry, (source, target, *numbers), (4, 1, 1), (32, 1, 1)))
    after, _ = run(steps, {0: x})
    want = x.copy()
    for i in range(times):
        want[n * (i + 1) : n * (i + 2)] = want[n * i : n * (i + 1)] * np.float32(2)
    np.testing.assert_array_equal(after[0], want)


TABLE = BASE * 100


@pytest.mark.parametrize("items", [32, 96, 7])
@pytest.mark.parametrize("n", [0, 1, 300, N])
def test_numbers_that_are_others_in_each_run(items: int, n: int) -> None:
    """Of arguments and of work-groups; what is linked is for the largest."""
    x, factor, shape = noise(), np.float32(1.5), Shape(groups=3, threads=96)
    entry, most = parse_kernel(SCALE, "scale"), (math.ceil(N / items), 1, 1)
    numbers = (DynamicNumber(8, 4), DynamicNumber(0, 4))
    steps = [
        LinkedStep(entry, (*_memory(a, b), *numbers), most, (items, 1, 1), count_offset=16) for a, b in ((0, 1), (1, 2))
    ]
    assert all(s.is_dynamic for s in steps)
    text = link(steps, 3, shape, find_step_order(steps), HEAD)
    assert text.count("// step") == 1, "steps that differ in their memory alone share code"
    memory: dict[Any, Any] = {TABLE: n, TABLE + 8: factor}
    memory |= {TABLE + 16 + 4 * k: count for k, count in enumerate((math.ceil(n / items), 1, 1))}
    buffers = [x, np.zeros_like(x), np.zeros_like(x)]
    for b, array in enumerate(buffers):
        memory.update((BASE * (b + 1) + 4 * i, v) for i, v in enumerate(array))
    params = given([BASE * (b + 1) for b in range(3)], TABLE)
    Machine(text.replace(f"{SPIN_LIMIT};", "1000;")).run(params, memory, shape.groups)
    got = np.array([memory[BASE * 3 + 4 * i] for i in range(N)], np.float32)
    np.testing.assert_array_equal(got, np.where(np.arange(N) < n, x * factor * factor, 0))


def test_a_number_that_is_read_as_something_else() -> None:
    entry = parse_kernel(SCALE, "scale")
    step = LinkedStep(entry, (*_memory(0, 1), DynamicNumber(0, 8), DynamicNumber(8, 4)), (1, 1, 1), (32, 1, 1))
    with pytest.raises(PtxKernelError, match="8 bytes is read as f32"):
        link([step], 2, SHAPE, [StepOrder(False)], HEAD)


def test_a_group_that_does_not_come() -> None:
    x = noise()
    steps = [scale(0, 1, 3.0), scale(1, 2, 0.5), scale(2, 0, 2.0)]
    _, words = run(steps, {0: x, 1: x * 0, 2: x * 0}, Shape(3, 32), missing=1)
    assert words[TIMED_OUT] >= 1, "the others leave and say so"
    assert words[ARRIVED] == 2


def test_a_group_that_does_not_come_to_steps_that_begin_early() -> None:
    x = noise()
    steps = [scale(0, 2, 3.0), weighed(2, 1, 3), weighed(3, 1, 2)]
    _, words = run(steps, {0: x, 1: x, 2: x * 0, 3: x * 0}, missing=1)
    assert words[TIMED_OUT] >= 1, "the others leave and say so"


def test_only_constants_are_read_early() -> None:
    step = weighed(0, 1, 2)
    assert begins_early(step)
    assert not begins_early(replace(step, args=_memory(0, 1, 2))), "w may be what another launch writes"
    assert not begins_early(weighed(0, 1, 2, items=16)), "parts of warps do not meet the others by themselves"
    assert begins_early(scale(0, 1, 1.0)), "it computes places before it reads anything"


def test_what_another_group_wrote_is_not_read_from_the_cache_for_constants() -> None:
    text = link([scale(0, 1, 3.0)], 2, SHAPE, [StepOrder(False)], HEAD)
    assert "ld.global.nc" in SCALE
    assert "ld.global.nc" not in text


def test_large_constants_pass_by() -> None:
    """Where all of them are more than the cache keeps; small ones, and what launches write, stay."""
    step = weighed(0, 1, 2)
    x, w, y = step.args
    assert isinstance(w, Memory)
    large = replace(step, args=(x, replace(w, last=STREAMED), y))
    for made, streams, want in ((large, True, 1), (large, False, 0), (step, True, 0)):
        text = link([scale(0, 3, 1.0), made], 4, SHAPE, [StepOrder(False), StepOrder(True)], HEAD, streams)
        assert text.count("ld.global.cs.f32") == want
    text = link([step, large], 4, SHAPE, [StepOrder(False), StepOrder(True)], HEAD, True)
    assert text.count("// step") == 2, "one reads them otherwise"


def test_a_group_has_more_shared_memory_on_hopper() -> None:
    wide = parse_kernel(turn(32).replace("[128]", "[40000]"), "turn")
    step = LinkedStep(wide, _memory(0, 1), (9, 9, 1), (32, 1, 1))
    small, large = Shape(2, 1024), Shape(2, 1024, shared=200 << 10)
    assert (slots_of(step, small), slots_of(step, large)) == (1, 5)
    head = ".version 9.0\n.target sm_90, texmode_independent\n.address_size 64"
    assert ".target sm_90," in link([step], 2, small, [StepOrder(False)], head)
    text = link([step], 2, large, [StepOrder(False)], head)
    assert ".target sm_90a," in text, "the driver gives that target alone more than 48 KiB"
    assert "linked_pool[200320]" in text


def test_addresses_are_one_argument() -> None:
    text = link([scale(0, 1, 3.0), scale(1, 2, 3.0)], 3, SHAPE, [StepOrder(False), StepOrder(True)], HEAD)
    assert text.count(".param") == 1 + text.count("ld.param")
    assert f".param .align 8 .b8 linked_memory[{8 * len(pointers_of(1, 2, [3, 4, 5]))}]" in text


def test_groups_tell_that_they_have_come_before_they_begin() -> None:
    text = link([scale(0, 2, 3.0), weighed(2, 1, 3)], 4, SHAPE, [StepOrder(False), StepOrder(True)], HEAD)
    assert text.index("red.release.gpu") < text.index("ld.global.f32 \t%f1") < text.index("ld.acquire.gpu")


def test_seats() -> None:
    assert slots_of(scale(0, 1, 1.0), SHAPE) == 3
    assert slots_of(scale(0, 1, 1.0, n=64), SHAPE) == 1, "two work-groups, a group for each"
    assert slots_of(scale(0, 1, 1.0, items=33), SHAPE) == 2
    assert slots_of(turned(0, 1, 2, (100, 100)), Shape(2, 96)) == 48
    assert slots_of(turned(0, 1, 32, (100, 100)), Shape(2, 1024)) == 15, "barriers of a group, but one"
    wide = parse_kernel(turn(32).replace("[128]", "[20000]"), "turn")
    assert slots_of(LinkedStep(wide, _memory(0, 1), (9, 9, 1), (32, 1, 1)), Shape(2, 1024)) == 2, "by shared memory"


def test_refusals() -> None:
    assert "more than 96" in refusal(scale(0, 1, 1.0, items=97), SHAPE)
    assert "no whole warps" in refusal(turned(0, 1, 33), SHAPE)
    assert not refusal(turned(0, 1, 4), SHAPE)
    assert not refusal(scale(0, 1, 1.0, items=33), SHAPE)
    wide = parse_kernel(turn(32).replace("[128]", "[49153]"), "turn")
    assert "bytes of local memory" in refusal(LinkedStep(wide, _memory(0, 1), (1, 1, 1), (32, 1, 1)), SHAPE)


def test_arguments_that_do_not_fit() -> None:
    entry = parse_kernel(SCALE, "scale")
    assert "takes 4 arguments" in argument_mismatch(LinkedStep(entry, _memory(0, 1), (1, 1, 1), (1, 1, 1)))
    numbers = (Number(b"\0" * 4), Number(b"\0" * 4))
    assert "global memory" in argument_mismatch(LinkedStep(entry, (*numbers, *numbers), (1, 1, 1), (1, 1, 1)))
    wrong = LinkedStep(entry, (*_memory(0, 1), Number(b"\0" * 4), Number(b"\0" * 8)), (1, 1, 1), (1, 1, 1))
    with pytest.raises(PtxKernelError, match="a number of 8 bytes is read as u32"):
        link([wrong], 2, SHAPE, [StepOrder(False)], HEAD)


def test_heads() -> None:
    assert head_of(SCALE) == ".version 9.0\n.target sm_90, texmode_independent\n.address_size 64"
    assert head_of(SCALE.replace("sm_90", "sm_61")) is None, "its threads do not wait one by one"
    assert head_of("\x7fELF") is None


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="NVIDIA's assembler is not here")
def test_the_assembler_takes_it(tmp_path: Path) -> None:
    steps = [scale(0, 1, 3.0), turned(1, 2, 32), scale(2, 0, 3.0), turned(0, 1, 4), turned(0, 2, 96), scale(1, 2, 3.0)]
    third = turn(32).replace("ld.shared.f32 \t%f2, [%rd9]", "ld.shared.f32 \t%f2, [turn_$_seen+8]")
    steps.append(replace(turned(2, 0, 32), entry=parse_kernel(third, "turn")))
    text = link(steps, 3, Shape(132, 384), find_step_order(steps), HEAD)
    path = tmp_path / "linked.ptx"
    path.write_text(text)
    command = ["ptxas", "-arch=sm_90", str(path), "-o", str(tmp_path / "linked.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if re.search(r"Unsupported .version|not defined for option", done.stderr):
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
