"""Casts put in between places: as few as there can be, constants ahead of time, images by way of buffers."""

from __future__ import annotations

from collections import Counter

import pytest

from opalite.ir import FLAT, DeviceInfo, DType, Graph, Node
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.place import Memory, Target
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import optimise, place
from opalite.plan.emit_program import emit
from opalite.plan.program import Storage

from ...helpers.graphs import GraphMaker

CASES = [
    ("pocl_avx512", None, Precision.FP32),
    ("pocl_avx512", Memory.IMAGE2D, Precision.FP16),
    ("adreno_640", Memory.IMAGE2D, Precision.FP32),
    ("adreno_640", Memory.IMAGE2D, Precision.FP16),
    ("mali_g76", None, Precision.FP16),
    ("nvidia_h200", None, Precision.FP16),
]


def branching() -> Graph:
    """One packed value with three readers, two of which want it row-major, and a second output in between."""
    g = GraphMaker()
    stem = g.conv("stem", g.input("x", 1, 16, 12, 12), 32)
    table = g.noise("table", 1, 32, 12, 12)
    stem = g.map(
        "shifted", "add", g.map("scaled", "mul", g.add("pooled", "Softmax", stem, axis=1, log=False), table), table
    )
    again = g.conv("again", stem, 32)
    turned = g.add("turned", "Transpose", stem, perm=(0, 2, 3, 1))
    slice_ = g.add("rolled", "Transpose", stem, perm=(0, 1, 3, 2))
    return g.done(again, turned, slice_, stem)


def placed(device: DeviceInfo, memory: Memory | None, precision: Precision) -> Graph:
    graph = branching()
    optimise(graph)
    set_precision(graph, PrecisionPolicy(precision))
    place(graph, device, memory=memory)
    return graph


def load(name: str) -> DeviceInfo:
    return read_description(name)


def casts(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == "PlaceCast"]


@pytest.mark.parametrize(("name", "memory", "precision"), CASES)
def test_one_cast_serves_all_readers_and_none_undoes_another(
    name: str, memory: Memory | None, precision: Precision
) -> None:
    found = casts(placed(load(name), memory, precision))
    assert found, "inputs and outputs are on the host"
    assert max(Counter((n.x, n.y.type.place) for n in found).values()) == 1
    for n in found:
        before = n.x.producer
        if before is not None and before.op.name == "PlaceCast":
            crossings = [n.x.type.place.target is not n.y.type.place.target for n in (before, n)]
            assert any(crossings), "layout and precision change in one cast"
            assert before.x.type.place != n.y.type.place, "a pair that leads back is no cast at all"


@pytest.mark.parametrize(("name", "memory", "precision"), CASES)
def test_host_and_image_meet_in_a_buffer(name: str, memory: Memory | None, precision: Precision) -> None:
    graph = placed(load(name), memory, precision)
    for n in casts(graph):
        if n.x.type.place.target is not n.y.type.place.target:
            assert (n.x.type.layout, n.y.type.layout) == (FLAT, FLAT)
            assert n.x.type.storage is n.y.type.storage, "the host moves bytes, the device converts"
    if memory is Memory.IMAGE2D:
        assert any(n.y.type.layout.is_image for n in casts(graph)), "the first convolution reads an image"


@pytest.mark.parametrize(("name", "memory", "precision"), CASES)
def test_constants_are_cast_ahead_of_time_and_once(name: str, memory: Memory | None, precision: Precision) -> None:
    graph = placed(load(name), memory, precision)
    assert not [n for n in casts(graph) if n.x.is_const]
    again = {id(v): v for n in graph.nodes for v in n.inputs if v is not None and v.is_const}
    by_place = Counter((id(v.data), v.type.place) for v in again.values())
    assert max(by_place.values()) == 1


@pytest.mark.parametrize(("name", "memory", "precision"), CASES)
def test_each_kind_of_storage_has_what_belongs_to_it(name: str, memory: Memory | None, precision: Precision) -> None:
    """As in MNN: weights are static, intermediates share memory, what a caller may bind is apart."""
    device = load(name)
    graph = placed(device, memory, precision)
    program = emit(graph, device)
    by_kind = Counter(s.storage for s in program.slots)
    assert by_kind[Storage.STATIC] >= 4, "filters and biases of two convolutions"
    assert by_kind[Storage.SEPARATE] >= 1 + len(graph.outputs), "the input and every output"
    assert by_kind[Storage.DYNAMIC] >= 1, "what lies between"
    assert not [n for n in graph.nodes if n.x.producer is None and n.x.type.place.target is not Target.HOST]


def test_elementwise_operators_and_sums_read_halves_and_floats_alike() -> None:
    """Exponentials and sums of squares are kept in float32 between halves, without casts."""
    g = GraphMaker()
    x = g.add("product", "MatMul", g.input("x", 64, 96), g.noise("w", 96, 128), trans_a=False, trans_b=False)
    grown = g.map("grown", "exp", x)
    size = g.add("size", "Reduce", x, kind="l2", axes=(1,), keepdims=True)
    scaled = g.map("scaled", "div", grown, size)
    mean = g.add("mean", "Reduce", size, kind="mean", axes=(0,), keepdims=True)
    graph = g.done(g.map("sum", "add", scaled, mean))
    optimise(graph)
    set_precision(graph, PrecisionPolicy(Precision.FP16))
    place(graph, load("nvidia_h200"))
    assert {n.precision for n in graph.nodes if n.op.name == "Reduce"} == {Precision.FP32, Precision.FP16}
    moves = [n for n in casts(graph) if n.x.type.place.target is n.y.type.place.target]
    assert len(moves) == 1, "that of the input: the output is stored as the host reads it"


@pytest.mark.parametrize("device", ["nvidia_h200", "mali_g76", "adreno_640"])
def test_transposes_at_the_host_change_the_storage_type(device: str) -> None:
    """An image [N,H,W,C] of floats becomes blocks of halves in one launch, and halves become rows of floats in one."""
    g = GraphMaker()
    turned = g.add("turned", "Transpose", g.input("x", 1, 20, 24, 3), perm=(0, 3, 1, 2))
    back = g.add("back", "Transpose", g.conv("conv", turned, 24), perm=(0, 2, 3, 1))
    flat = g.add("flat", "Reshape", back, shape=(1, 480, 24))
    graph = g.done(flat)
    optimise(graph)
    set_precision(graph, PrecisionPolicy(Precision.FP16))
    place(graph, load(device))
    assert not [n for n in casts(graph) if n.x.type.place.target is n.y.type.place.target]
    assert {v.type.storage for n in graph.nodes if n.op.name == "Conv" for v in (n.x, n.y)} == {DType.FLOAT16}
