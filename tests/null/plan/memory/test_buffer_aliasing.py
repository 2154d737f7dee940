"""What lies inside other tensors' memory, what is copied instead and why, and who notices when that is wrong.

Longer than 400 lines: cases that do not know each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opalite.ir import DeviceInfo, DType, Graph, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import ADDRESSES, SLOW_SUB_BUFFERS
from opalite.ir.place import OPENCL, Memory, packed
from opalite.passes.pipeline import place
from opalite.plan import emit_program as emission
from opalite.plan.emit_program import emit
from opalite.plan.memory.buffer_aliasing import GROWTH, SMALL, joins_stretches, pieces, stretch_start
from opalite.plan.memory.verify_memory_plan import MemoryRange, cut, joined
from opalite.plan.program import LaunchStep, NodeReport, Program, Slot, Storage

from ....helpers.graphs import GraphMaker


def load(name: str) -> DeviceInfo:
    return read_description(name)


CPU, ADRENO, MALI, NVIDIA = load("pocl_avx512"), load("adreno_640"), load("mali_g76"), load("nvidia_h200")


def planned(graph: Graph, device: DeviceInfo = CPU, memory: Memory | None = Memory.BUFFER) -> Program:
    place(graph, device, memory=memory)
    return emit(graph, device)


def launches(program: Program) -> list[str]:
    """Names of the nodes that launch something, casts left out."""
    return [s.node.split("'")[1] for s in program.steps if isinstance(s, LaunchStep) and "PlaceCast" not in s.node]


def report(program: Program, name: str) -> NodeReport:
    (found,) = [r for r in program.placement if r.name == name and r.op != "PlaceCast"]
    assert isinstance(found, NodeReport)
    return found


def slot(program: Program, label: str) -> Slot:
    (found,) = [s for s in program.slots if s.label == label]
    return found


def concat(g: GraphMaker, name: str, *inputs: Value, axis: int = 1) -> Value:
    return g.add(name, "Concat", *inputs, axis=axis)


def relu(g: GraphMaker, name: str, x: Value) -> Value:
    return g.map(name, lambda v: v.call("max", 0), x)


def part(g: GraphMaker, name: str, x: Value, start: int, size: int, axis: int = 1) -> Value:
    starts, sizes = [0] * len(x.shape), list(x.shape)
    starts[axis], sizes[axis] = start, size
    return g.add(name, "Slice", x, starts=tuple(starts), steps=(1,) * len(starts), sizes=tuple(sizes))


def fire(channels: int = 32, size: int = 12) -> Graph:
    """SqueezeNet's module: a squeeze, two expansions side by side, and a reader of both."""
    g = GraphMaker()
    s = g.conv("squeeze", g.input("x", 1, 16, size, size), 16, kernel=1)
    both = concat(g, "join", g.conv("e1", s, channels, kernel=1), g.conv("e3", s, channels))
    return g.done(g.conv("next", both, 16, kernel=1))


def test_expansions_of_a_fire_module_are_computed_in_the_joined_tensor() -> None:
    program = planned(fire())
    assert launches(program) == ["squeeze", "e1", "e3", "next"]
    whole, first, second = slot(program, "join"), slot(program, "e1"), slot(program, "e3")
    assert first.within == second.within == whole.id
    assert (first.offset, second.offset) == (whole.offset, whole.offset + first.nbytes)
    assert first.nbytes + second.nbytes == whole.nbytes
    said = report(program, "join")
    assert (said.target, said.kernel, said.launches, said.nbytes) == ("view", "", 0, 0.0)
    assert said.why == f"moves no data: its inputs are computed in its memory, from byte {whole.offset} of the arena on"
    assert program.memory.nested == 2


def test_nothing_is_nested_without_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_BUFFER_ALIASING", "0")
    program = planned(fire())
    assert launches(program) == ["squeeze", "e1", "e3", "join", "join", "next"]
    assert all(s.within < 0 for s in program.slots)
    assert "copies 2 of 2 inputs: OPALITE_BUFFER_ALIASING=0" in report(program, "join").why


def test_drivers_that_are_slow_on_parts_of_buffers_copy() -> None:
    slow = dataclasses.replace(NVIDIA, quirks=(*set(NVIDIA.quirks) - {ADDRESSES}, SLOW_SUB_BUFFERS))
    program = planned(fire(), slow)
    assert all(s.within < 0 for s in program.slots)
    assert "launches on parts of buffers are slow on this device" in report(program, "join").why


def test_tensors_given_by_address_start_at_any_vector() -> None:
    """A sub-buffer of the H200 would have to start at a multiple of 512 bytes."""
    assert NVIDIA.base_align == 512
    program = planned(fire(size=3), NVIDIA)
    parts = [s.offset - program.slots[s.within].offset for s in program.slots if s.within >= 0]
    assert len(parts) == 2
    assert any(offset % 512 for offset in parts)
    assert not any(offset % 16 for offset in parts)


@pytest.mark.parametrize("device", [ADRENO, MALI, CPU], ids=lambda d: d.family)
def test_blocks_of_any_size_nest(device: DeviceInfo) -> None:
    assert planned(fire(), device).memory.nested == 2


def test_images_are_copied() -> None:
    program = planned(fire(), ADRENO, Memory.IMAGE2D)
    assert report(program, "join").launches == 1
    assert program.memory.nested == 0


def dense_block(lists_all: bool) -> Graph:
    """DenseNet's: layers whose output is joined with all features so far, or with the last joined tensor."""
    g = GraphMaker()
    x = g.conv("stem", g.input("x", 1, 16, 8, 8), 32, kernel=1)
    features = [x]
    for i in range(5):
        features.append(g.conv(f"new{i}", relu(g, f"act{i}", x), 16))
        x = concat(g, f"join{i}", *(features if lists_all else (x, features[-1])))
    return g.done(g.conv("next", x, 16, kernel=1))


@pytest.mark.parametrize("lists_all", [True, False])
def test_a_dense_block_lies_in_its_last_tensor(lists_all: bool) -> None:
    program = planned(dense_block(lists_all))
    assert not [n for n in launches(program) if n.startswith("join")]
    whole = slot(program, "join4")
    inside = [s for s in program.slots if s.within >= 0]
    assert {s.within for s in inside} == {whole.id}
    assert {s.label for s in inside} == {"stem", *(f"new{i}" for i in range(5)), *(f"join{i}" for i in range(4))}
    assert slot(program, "new4").offset == whole.offset + whole.nbytes - slot(program, "new4").nbytes
    assert "inside %join4" in report(program, "join1").why


def split_block() -> Graph:
    g = GraphMaker()
    x = g.conv("stem", g.input("x", 1, 16, 8, 8), 48, kernel=1)
    left, right = g.conv("l", part(g, "left", x, 0, 16), 16), g.conv("r", part(g, "right", x, 16, 32), 16)
    return g.done(g.map("sum", "add", left, right))


def test_a_split_is_two_views() -> None:
    program = planned(split_block())
    assert not {"left", "right"} & set(launches(program))
    whole, second = slot(program, "stem"), slot(program, "right")
    assert (second.within, second.offset - whole.offset, second.nbytes) == (
        whole.id,
        whole.nbytes // 3,
        2 * whole.nbytes // 3,
    )
    assert report(program, "right").why.startswith("moves no data: it is part of its input's memory, from byte")


def test_a_split_that_is_joined_again_is_nothing() -> None:
    g = GraphMaker()
    x = g.conv("stem", g.input("x", 1, 16, 8, 8), 48, kernel=1)
    again = concat(g, "again", part(g, "left", x, 0, 16), part(g, "right", x, 16, 32))
    program = planned(g.done(g.conv("next", again, 16, kernel=1)))
    assert launches(program) == ["stem", "next"]


def test_rows_nest_in_row_major_tensors() -> None:
    g = GraphMaker()
    x = relu(g, "a", g.input("x", 4, 32))
    both = concat(g, "join", relu(g, "b", part(g, "top", x, 0, 2, axis=0)), relu(g, "c", x), axis=0)
    program = planned(g.done(relu(g, "y", both)))
    assert launches(program) == ["a", "b", "c", "y"]


def test_a_reshape_of_a_piece_is_the_piece() -> None:
    g = GraphMaker()
    x = relu(g, "a", g.input("x", 8, 32))
    flat = g.add("flat", "Reshape", relu(g, "b", x), shape=(1, 256))
    both = concat(g, "join", flat, g.add("flat2", "Reshape", relu(g, "c", x), shape=(1, 256)), axis=0)
    program = planned(g.done(relu(g, "y", g.add("turned", "Reshape", both, shape=(16, 32)))))
    assert launches(program) == ["a", "b", "c", "y"]
    assert slot(program, "b").within == slot(program, "join").id


def test_casts_write_into_the_joined_tensor() -> None:
    g = GraphMaker()
    x = g.conv("stem", g.input("x", 1, 16, 12, 12), 64)
    both = concat(g, "join", g.conv("l", x, 24), g.conv("r", x, 40))  # no whole blocks: joined in row-major order
    program = planned(g.done(relu(g, "y", g.add("turned", "Transpose", both, perm=(0, 2, 3, 1)))))
    said = report(program, "join")
    assert (said.target, said.places) == ("view", ("opencl/NCHW",))
    joined_values = next(n for n in g.graph.nodes if n.name == "join").inputs
    casts = [v for v in joined_values if v is not None and v.producer is not None and v.producer.op.name == "PlaceCast"]
    assert [v.producer.x.type.layout.pack for v in casts if v.producer is not None] == [16]
    assert {v.name for v in joined_values if v is not None} == {s.label for s in program.slots if s.within >= 0}


def tensors(g: GraphMaker, count: int, shape: tuple[int, ...] = (2, 32)) -> list[Value]:
    x = relu(g, "a", g.input("x", *shape))
    return [relu(g, f"v{i}", x) for i in range(count)]


def of_input(g: GraphMaker) -> Value:
    return concat(g, "join", relu(g, "v0", g.input("x", 2, 32)), g.graph.inputs[0], axis=0)


def of_constant(g: GraphMaker) -> Value:
    return concat(g, "join", *tensors(g, 1), g.noise("c", 2, 32), axis=0)


def of_output(g: GraphMaker) -> Value:
    first, second = tensors(g, 2)
    g.graph.outputs.append(second)
    return concat(g, "join", first, second, axis=0)


def twice(g: GraphMaker) -> Value:
    (v,) = tensors(g, 1)
    return concat(g, "join", v, v, axis=0)


def in_another(g: GraphMaker) -> Value:
    first, second, third = tensors(g, 3)
    g.graph.outputs.append(relu(g, "other", concat(g, "before", second, third, axis=0)))
    return concat(g, "join", first, second, axis=0)


def half_of_another(g: GraphMaker) -> Value:
    first, second = tensors(g, 2)
    return concat(g, "join", first, part(g, "half", second, 1, 1, axis=0), axis=0)


def uneven(g: GraphMaker) -> Value:
    first, second = tensors(g, 2, (3, 8))
    return concat(g, "join", first, second, axis=0)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (of_input, "it comes from the host"),
        (of_constant, "it is a constant"),
        (of_output, "it goes to the host"),
        (twice, "it is joined twice"),
        (in_another, "it is in the memory of %before"),
        (half_of_another, "it is in the memory of %v1"),
        (uneven, "byte 96 of the output is not a multiple of 128"),
    ],
)
def test_inputs_that_must_be_copied(build: Callable[[GraphMaker], Value], reason: str) -> None:
    g = GraphMaker()
    y = relu(g, "y", build(g))
    program = planned(g.done(y, *g.graph.outputs))
    assert launches(program).count("join") == 1  # the other input is in place
    assert slot(program, "v0").within == slot(program, "join").id
    said = report(program, "join")
    assert said.why.endswith(f"; copies 1 of 2 inputs: {reason}")
    assert said.launches == 1
    (step,) = [s for s in program.steps if isinstance(s, LaunchStep) and s.node.endswith("'join'")]
    assert step.nbytes == said.nbytes
    assert 0 < said.nbytes < 2 * slot(program, "join").nbytes


def whole_output(g: GraphMaker) -> Value:
    return concat(g, "join", *tensors(g, 2), axis=0)


def inner_axis(g: GraphMaker) -> Value:
    return relu(g, "y", concat(g, "join", *tensors(g, 2), axis=1))


def batch_of_two(g: GraphMaker) -> Value:
    x = g.conv("stem", g.input("x", 2, 16, 8, 8), 16)
    return g.conv("y", concat(g, "join", g.conv("l", x, 16), g.conv("r", x, 16)), 16)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (whole_output, "of the output, it goes to the host"),
        (inner_axis, "it is not one contiguous part of the output's memory"),
        (batch_of_two, "it is not one contiguous part of the output's memory"),
    ],
)
def test_concats_that_must_copy(build: Callable[[GraphMaker], Value], reason: str) -> None:
    g = GraphMaker()
    program = planned(g.done(build(g)))
    assert launches(program).count("join") == 2
    assert report(program, "join").why.endswith(f"; copies 2 of 2 inputs: {reason}")
    assert program.memory.nested == 0


@pytest.mark.parametrize(
    ("channels", "axis", "batch", "height", "stretches"),
    [
        ((16, 32, 5), 1, 1, 4, True),
        ((16, 5, 16), 1, 1, 4, False),  # the second leaves lanes of its block that the third would have to fill
        ((16, 16), 1, 2, 4, False),
        ((16, 16), 2, 1, 4, True),  # one block of channels: rows follow each other
        ((20, 20), 2, 1, 4, False),
        ((16, 16), 3, 1, 1, True),
    ],
)
def test_stretches_of_blocks(channels: tuple[int, ...], axis: int, batch: int, height: int, stretches: bool) -> None:
    g = GraphMaker()
    node = concat(
        g, "join", *(g.input(f"x{i}", batch, c, height, 3) for i, c in enumerate(channels)), axis=axis
    ).producer
    assert node is not None
    for v in (*node.inputs, node.y):
        assert v is not None
        v.type = v.type.with_place(OPENCL.with_layout(packed(16)))
    assert joins_stretches(node) == stretches
    if stretches:
        assert list(pieces(node).values())[-1] + node.input(-1).type.nbytes == node.y.type.nbytes


@pytest.mark.parametrize(
    ("starts", "sizes", "byte"),
    [
        ((0, 16, 0, 0), (1, 32, 4, 3), 16 * 4 * 3 * 4),
        ((1, 32, 0, 0), (1, 18, 4, 3), (64 + 32) * 4 * 3 * 4),  # to the end: the last block's empty lanes come along
        ((0, 32, 0, 0), (1, 10, 4, 3), None),
        ((0, 8, 0, 0), (1, 16, 4, 3), None),
        ((0, 16, 0, 0), (2, 16, 4, 3), None),
        ((1, 16, 2, 0), (1, 16, 2, 3), (64 + 16 + 0) * 4 * 3 * 4 + 2 * 3 * 16 * 4),
    ],
)
def test_stretches_of_slices_of_blocks(starts: tuple[int, ...], sizes: tuple[int, ...], byte: int | None) -> None:
    g = GraphMaker()
    node = g.add("cut", "Slice", g.input("x", 2, 50, 4, 3), starts=starts, steps=(1,) * 4, sizes=sizes).producer
    assert node is not None
    for v in (node.x, node.y):
        v.type = v.type.with_place(OPENCL.with_layout(packed(16)))
    assert stretch_start(node) == byte


@pytest.mark.parametrize(
    ("start", "size", "axis", "reason"),
    [
        (1, 2, 1, "it is not one contiguous part of the input's memory"),
        (1, 2, 0, "byte 36 of the input is not a multiple of 128"),
    ],
)
def test_slices_that_must_copy(start: int, size: int, axis: int, reason: str) -> None:
    g = GraphMaker()
    x = relu(g, "a", g.input("x", 4, 9))
    program = planned(g.done(relu(g, "y", part(g, "cut", x, start, size, axis))))
    assert launches(program) == ["a", "cut", "y"]
    assert report(program, "cut").why.endswith(f"; copies {reason}")


def test_slices_of_inputs_and_slices_that_are_outputs_copy() -> None:
    g = GraphMaker()
    x = g.input("x", 4, 32)
    first = relu(g, "y", part(g, "of_input", x, 1, 2, axis=0))
    second = part(g, "of_output", relu(g, "a", x), 1, 2, axis=0)
    program = planned(g.done(first, second))
    assert report(program, "of_input").why.endswith("copies of the input, it comes from the host")
    assert report(program, "of_output").why.endswith("copies of the output, it goes to the host")


def test_steps_and_blocks_of_slices() -> None:
    g = GraphMaker()
    x = relu(g, "a", g.input("x", 4, 64))
    every = g.add("every", "Slice", x, starts=(0, 0), steps=(2, 1), sizes=(2, 64))
    row = g.add("row", "Slice", x, starts=(2, 32), steps=(2, 1), sizes=(1, 32))  # one row: its step is nothing
    program = planned(g.done(relu(g, "y", every), relu(g, "z", row)))
    assert [n for n in launches(program) if n in ("every", "row")] == ["every"]
    assert slot(program, "row").offset - slot(program, "a").offset == 4 * (2 * 64 + 32)


def skip(g: GraphMaker, size: int) -> Value:
    """A tensor that is kept while large ones pass, and then joined: its place in the sum would be held all along."""
    x = g.conv("stem", g.input("x", 1, 16, size, size), 64)
    deep = g.conv("wide2", g.conv("wide1", x, 80), 64)
    return g.conv("y", concat(g, "join", x, g.conv("late", deep, 64)), 16)


def test_what_would_need_more_memory_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def arena(nesting: str) -> Program:
        monkeypatch.setenv("OPALITE_BUFFER_ALIASING", nesting)
        g = GraphMaker()
        return planned(g.done(skip(g, 40)))

    before, program = arena("0"), arena("1")
    assert launches(program).count("join") == 1
    assert report(program, "join").why.endswith("copies 1 of 2 inputs: all would need more memory at once")
    assert slot(program, "late").within == slot(program, "join").id
    assert program.memory.lower_bound <= GROWTH * before.memory.lower_bound
    g = GraphMaker()
    small = planned(g.done(skip(g, 8)))
    assert "join" not in launches(small)  # a few kilobytes are worth a launch
    assert small.memory.lower_bound <= GROWTH * before.memory.lower_bound + SMALL


@st.composite
def row_graphs(draw: st.DrawFn) -> Graph:
    """Sums, slices of rows, joined rows and reshapes at random; any value may be an output."""
    g = GraphMaker()
    values = [g.input("x", draw(st.integers(1, 6)), 32)]
    for i in range(draw(st.integers(1, 14))):
        v, w = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["relu", "join", "join", "slice", "reshape"]))
        if kind == "join" and v.shape[0] + w.shape[0] < 40:
            third = [values[-1]] * draw(st.integers(0, 1))
            values.append(concat(g, f"n{i}", v, w, *third, axis=0))
        elif kind == "slice":
            start = draw(st.integers(0, v.shape[0] - 1))
            values.append(part(g, f"n{i}", v, start, draw(st.integers(1, v.shape[0] - start)), axis=0))
        elif kind == "reshape":
            flat = g.add(f"m{i}", "Reshape", v, shape=(1, v.type.count))
            values.append(g.add(f"n{i}", "Reshape", flat, shape=v.shape))
        else:
            values.append(relu(g, f"n{i}", v))
    return g.done(*dict.fromkeys([values[-1], *draw(st.lists(st.sampled_from(values), max_size=2))]))


@given(row_graphs())
def test_random_graphs_read_what_was_written(graph: Graph) -> None:
    program = planned(graph)  # verifies contents
    holders = {s.id: s for s in program.slots}
    for s in program.slots:
        if s.within >= 0:
            whole = holders[s.within]
            assert whole.within < 0
            assert s.storage is whole.storage is Storage.DYNAMIC
            assert s.offset % CPU.base_align == 0
            assert whole.offset <= s.offset
            assert s.offset + s.nbytes <= whole.offset + whole.nbytes


def spoil(monkeypatch: pytest.MonkeyPatch, **changes: Callable[[Slot], Any]) -> None:
    """Let emission's memory come out changed: `changes` by label, from the slot to what its offset should be."""
    assign = emission.assign_memory

    def changed(program: Program, *rest: Any) -> None:
        assign(program, *rest)
        for i, s in enumerate(program.slots):
            if s.label in changes:
                program.slots[i] = dataclasses.replace(s, offset=changes[s.label](s))

    monkeypatch.setattr(emission, "assign_memory", changed)


def test_the_verifier_sees_a_piece_at_a_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, e3=lambda s: s.offset + 128)
    with pytest.raises(AssertionError, match=r"Conv node 'next' reads %join, but 128 bytes of its memory hold nothing"):
        planned(fire())


def test_the_verifier_sees_a_launch_that_writes_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = slot(planned(fire()), "join").offset
    spoil(monkeypatch, squeeze=lambda s: whole)
    with pytest.raises(AssertionError, match=r"'e1' writes bytes"):
        planned(fire())


def test_the_verifier_sees_a_value_overwritten_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def graph() -> Graph:
        g = GraphMaker()
        a, b = tensors(g, 2, (2, 64))
        held = relu(g, "held", a)
        both = concat(g, "join", a, b, axis=0)
        return g.done(g.map("y", "add", relu(g, "last", part(g, "cut", both, 0, 2, axis=0)), held))

    first = slot(planned(graph()), "held")
    spoil(monkeypatch, join=lambda s: s.offset, last=lambda s: first.offset)
    with pytest.raises(AssertionError, match=r"reads %held, but 512 bytes of its memory hold %last"):
        planned(graph())


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12), st.integers(0, 60), st.integers(1, 20))
def test_bytes_remember_like_an_array(writes: list[tuple[int, int]], start: int, count: int) -> None:
    memory, plain = MemoryRange(), [(None, i) for i in range(100)]
    for number, (at, nbytes) in enumerate(writes):
        memory.write(at, (nbytes, number, 3))
        plain[at : at + nbytes] = [(number, 3 + i) for i in range(nbytes)]  # type: ignore[misc]
    read = memory.read(start, count)
    assert [(what, first + i) for n, what, first in read for i in range(n)] == plain[start : start + count]
    assert read == joined(read)
    half = count // 2
    assert joined([*cut(read, 0, half), *cut(read, half, count - half)]) == read


def test_element_sizes_count() -> None:
    g = GraphMaker()
    x = g.input("x", 4, 64, dtype=DType.FLOAT16)
    both = concat(g, "join", relu(g, "v0", x), relu(g, "v1", x), axis=0)
    program = planned(g.done(relu(g, "y", both)))
    assert slot(program, "v1").offset - slot(program, "join").offset == np.dtype(np.float16).itemsize * 4 * 64
