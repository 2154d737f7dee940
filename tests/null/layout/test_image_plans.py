"""Plans with images for devices that are not here: which tensors become images, and the image pool."""

from __future__ import annotations

import dataclasses
import re

import pytest

from opalite.ir import DeviceInfo, DType, Graph, Node, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.place import IMAGE, Layout, Memory
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.kernels.kernel import Binding, Kernel
from opalite.layout.assign_precision import set_precision
from opalite.layout.kernel_candidates import Measured, view_options
from opalite.ops.strided_view import View
from opalite.passes.pipeline import optimise, place
from opalite.plan.emit_program import emit
from opalite.plan.program import LaunchStep, Program, SlotArg
from opalite.tune.tuner import find_tuning_jobs
from opalite.tune.tuning_database import TuningDatabase
from opalite.tune.tuning_levels import Level
from opalite.tune.tuning_lookup import Lookup

from ...helpers.graphs import GraphMaker


def load(name: str) -> DeviceInfo:
    return read_description(name)


ADRENO, MALI = load("adreno_640"), load("mali_g76")


def small_net(size: int = 32, channels: int = 16) -> Graph:
    """Convolutions with a residual, depthwise, a channel gate, pooling, concatenation, and a head of two dimensions."""
    g = GraphMaker()
    x = g.input("x", 1, 3, size, size)
    first = g.map("r1", lambda v: v.call("max", 0), g.conv("c1", x, channels))
    deep = g.conv("dw", first, channels, group=channels)
    total = g.map("sum", "add", g.conv("c2", deep, channels, kernel=1), first)
    gate = g.map("gate", "sigmoid", g.conv("g1", mean(g, "squeeze", total), channels, kernel=1))
    gated = g.map("gated", "mul", total, gate)
    joined = g.add("joined", "Concat", gated, first, axis=1)
    flat = g.add("flat", "Reshape", mean(g, "pooled", joined), shape=(1, 2 * channels))
    head = g.add("head", "MatMul", flat, g.noise("w", 2 * channels, 10), trans_a=False, trans_b=False)
    return g.done(head)


def mean(g: GraphMaker, name: str, x: Value) -> Value:
    return g.add(name, "Reduce", x, kind="mean", axes=(2, 3), keepdims=True)


def layouts(graph: Graph) -> dict[str, Layout]:
    """Layout of each operator's output by the node's name."""
    return {n.name: n.y.type.layout for n in graph.nodes if n.op.name not in ("PlaceCast", "Reshape")}


def placed(graph: Graph, device: DeviceInfo, memory: Memory | None, precision: Precision = Precision.FP32) -> Graph:
    optimise(graph)
    set_precision(graph, PrecisionPolicy(precision))
    place(graph, device, memory=memory)
    return graph


def plan(graph: Graph, device: DeviceInfo, memory: Memory | None, precision: Precision = Precision.FP32) -> Program:
    return emit(placed(graph, device, memory, precision), device)


def test_an_adreno_that_chooses_by_itself_gets_images() -> None:
    assert ADRENO.prefers_images
    found = layouts(placed(small_net(), ADRENO, None))
    assert found.pop("head").is_row_major
    assert set(found.values()) == {IMAGE}


@pytest.mark.parametrize("device", [MALI, load("intel_uhd_630"), load("nvidia_h200"), load("pocl_avx512")])
def test_others_prefer_buffers(device: DeviceInfo) -> None:
    assert not device.prefers_images


@pytest.mark.parametrize("device", [ADRENO, MALI])
def test_buffers_on_demand(device: DeviceInfo) -> None:
    program = plan(small_net(), device, Memory.BUFFER)
    assert not program.image_pool
    assert all(slot.image is None for slot in program.slots)


def test_images_on_demand() -> None:
    found = layouts(placed(small_net(), MALI, Memory.IMAGE2D))
    assert found.pop("head").is_row_major
    assert set(found.values()) == {IMAGE}


def test_a_tensor_over_the_limits_gets_a_buffer() -> None:
    wide, narrow = small_net(64, 1600), dataclasses.replace(ADRENO, image2d_max=(16384, 16384))
    found = layouts(placed(wide, narrow, Memory.IMAGE2D))
    assert 64 * 1600 / 4 > 16384
    assert not found["c1"].is_image
    assert found["g1"].is_image


def test_a_device_without_images_gets_buffers() -> None:
    device = dataclasses.replace(ADRENO, image_support=False)
    assert not plan(small_net(), device, Memory.IMAGE2D).image_pool


def test_the_tuner_of_an_adreno_tries_buffers_too() -> None:
    """Images are what it takes unmeasured, not all that it can compare."""

    def convolution(measured: Measured | None = None) -> Node:
        graph = small_net()
        optimise(graph)
        place(graph, ADRENO, memory=None, measured=measured)
        return next(n for n in graph.nodes if n.name == "c2")

    node = convolution()
    assert node.chosen.option.has_images
    lookup = Lookup(TuningDatabase(None), ADRENO)
    wide = {
        c.binding.outputs[0].is_image: job
        for job in find_tuning_jobs([node], lookup, Level.WIDE)
        for c in job.candidates
    }
    assert wide[True].chosen
    assert not wide[False].chosen
    assert [job.chosen for job in find_tuning_jobs([node], lookup, Level.NORMAL)] == [True]

    def measured(node: Node, kernel: Kernel, binding: Binding) -> float | None:
        return 1e-3 if binding.outputs[0].is_image else 1e-9

    assert not convolution(measured).chosen.option.has_images


def test_elsewhere_images_are_taken_only_where_they_were_measured() -> None:
    def images_win(node: Node, kernel: Kernel, binding: Binding) -> float | None:
        return 1e-9 if any(layout.is_image for layout in binding.outputs) else 1e-3

    def buffers_win(node: Node, kernel: Kernel, binding: Binding) -> float | None:
        return 1e-3 - images_win(node, kernel, binding)

    for measured, wanted in ((None, False), (buffers_win, False), (images_win, True)):
        graph = small_net()
        optimise(graph)
        place(graph, MALI, memory=None, measured=measured)
        assert layouts(graph)["c1"].is_image == wanted
        conv = next(n for n in graph.nodes if n.name == "c1" and n.op.name == "Conv")
        assert any(o.has_images for o in conv.chosen.options), "the tuner is to try them"
        assert bool(emit(graph, MALI).image_pool) == wanted


def chosen(device: DeviceInfo, channels: tuple[int, int], side: int, kernel: int = 3) -> str:
    """What computes a convolution of so many channels, on a picture that was computed before."""
    g = GraphMaker()
    x = g.map("tanh", "tanh", g.input("x", 1, channels[0], side, side))
    graph = g.done(g.map("relu", lambda v: v.call("max", 0), g.conv("c", x, channels[1], kernel=kernel)))
    optimise(graph)
    place(graph, device, memory=None)
    return next(n.chosen.option.kernel.name for n in graph.nodes if n.op.name == "Conv")


def test_an_adreno_takes_winograd_where_channels_are_many_and_constant_memory_where_they_are_few() -> None:
    older = load("adreno_330")
    assert chosen(ADRENO, (256, 256), 56) == "ImageWinograd"
    assert chosen(ADRENO, (32, 32), 56) == "ImageConv"
    assert chosen(ADRENO, (256, 256), 56, kernel=1) == "ImageConv"
    assert chosen(older, (64, 64), 112) == "ImageWinograd"  # less arithmetic to a byte
    assert chosen(ADRENO, (3, 8), 128) == "ImageConvConstant"
    assert chosen(ADRENO, (3, 64), 128) == "ImageConv"
    assert not chosen(MALI, (3, 8), 128).startswith("Image")


def attention_of(size: int, heads: int) -> Node:
    """Attention over `heads` heads of `size` side by side in the rows of one product, placed for an Adreno."""
    g = GraphMaker()
    columns = heads * size
    joint = g.add(
        "joint", "MatMul", g.input("x", 1, 128, 64), g.noise("w", 64, 3 * columns), trans_a=False, trans_b=False
    )
    views = tuple(View((1, heads, 128, size), (128 * 3 * columns, size, 3 * columns, 1), i * columns) for i in range(3))
    attrs = {"scale": 0.3, "causal": False, "softcap": 0.0, "views": views, "out_axes": (0, 2, 1, 3)}
    graph = g.done(g.add("heads", "Attention", joint, joint, joint, None, **attrs))
    place(graph, ADRENO, memory=None)
    return next(n for n in graph.nodes if n.op.name == "Attention")


def test_attention_reads_what_a_product_wrote_as_an_image() -> None:
    node = attention_of(32, 4)
    assert node.chosen.option.kernel is not None
    assert node.chosen.option.kernel.name == "ImageAttention"
    assert node.x.type.layout.is_image
    assert node.y.type.layout.is_row_major


@pytest.mark.parametrize(
    "size, heads, why",
    [(6, 4, "not made of whole texels"), (5, 1, "a row of 5 columns is not made of whole texels")],
)
def test_heads_that_are_no_whole_texels_are_read_from_buffers(size: int, heads: int, why: str) -> None:
    node = attention_of(size, heads)
    assert why in node.chosen.refusals["ImageAttention"]
    assert node.x.type.layout.is_row_major


def test_refusals_say_why() -> None:
    graph = placed(small_net(), ADRENO, Memory.BUFFER)
    conv = next(n for n in graph.nodes if n.op.name == "Conv")
    assert conv.chosen.refusals["ImageConv"] == "tensors are kept in buffers"


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
def test_the_image_pool(precision: Precision) -> None:
    """Images are reused, large enough for each tensor, and never shared by values that live at the same time."""
    program = plan(small_net(), ADRENO, None, precision)
    pool = program.image_pool
    images = [s for s in program.slots if s.image is not None and s.id not in program.weights]
    assert len(pool) < len(images)
    uses: dict[int, list[int]] = {s.id: [] for s in images}
    for i, step in enumerate(program.steps):
        for a in getattr(step, "args", ()):
            if isinstance(a, SlotArg) and a.slot in uses:
                uses[a.slot].append(i)
    for s in images:
        assert s.image is not None
        width, height, dtype = pool[s.image_slot]
        assert dtype is precision.stored(DType.FLOAT32)
        assert s.image[0] <= width <= ADRENO.image2d_max[0]
        assert s.image[1] <= height <= ADRENO.image2d_max[1]
        for t in images:
            if s.id < t.id and s.image_slot == t.image_slot:
                assert max(uses[s.id]) < min(uses[t.id]) or max(uses[t.id]) < min(uses[s.id])
    assert program.memory.images == sum(w * h * 4 * dtype.size for w, h, dtype in pool)


def test_a_wide_and_a_high_image_do_not_become_a_huge_one() -> None:
    g = GraphMaker()
    x = g.map("a", "tanh", g.input("x", 1, 4, 4, 8192))
    y = g.map("b", "tanh", g.input("y", 1, 4, 8192, 4))
    program = plan(g.done(x, y), ADRENO, Memory.IMAGE2D)
    assert sum(w * h for w, h, _ in program.image_pool) <= 4 * 4 * 8192


def test_filters_and_biases_are_images_of_their_own_shapes() -> None:
    program = plan(small_net(channels=32), ADRENO, None)
    shapes = {program.slots[i].label.split(":")[0]: a.shape for i, a in program.weights.items() if a.ndim == 3}
    assert shapes["c1.w"] == (8 * 9, 4, 4)
    assert shapes["dw.w"] == (8, 9, 4)
    assert shapes["c2.b"] == (1, 8, 4)


def test_functions_given_images_are_inlined() -> None:
    """Mesa reads another image in a function that is left (tests/portability/faults/rusticl_image_parameter.py)."""
    sources = [s.text for s in plan(small_net(), ADRENO, Memory.IMAGE2D).sources]
    given = [h for text in sources for h in re.findall(r"^(?!kernel|#|//).*\bimage2d_t\b.*\{$", text, re.MULTILINE)]
    given = [h for h in given if not h.startswith(" ")]  # a kernel's parameters may go on
    assert given
    assert all("always_inline" in h for h in given)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ((2, 64, 1, 1), (2, 64), True),
        ((2, 3, 64), (6, 64), True),
        ((6, 64), (2, 3, 1, 64), False),
        ((1, 64, 8, 8), (1, 64, 64), False),
        ((2, 64), (2, 64, 1, 1), True),
        ((6, 64), (3, 128), False),
    ],
)
def test_a_reshape_between_equal_images_moves_nothing(
    before: tuple[int, ...], after: tuple[int, ...], same: bool
) -> None:
    g = GraphMaker()
    y = g.add("r", "Reshape", g.map("a", "tanh", g.input("x", *before)), shape=after)
    reshape = next(n for n in g.done(y).nodes if n.op.name == "Reshape")
    assert any(o.has_images for o in view_options(reshape, ADRENO, None)) == same
    assert not any(o.has_images for o in view_options(reshape, ADRENO, Memory.BUFFER))
    stored = [IMAGE.image_size(shape) for shape in (before, after)]
    assert not same or stored[0] == stored[1]


@pytest.mark.parametrize("name", ["mali_t860", "mali_g52", "mali_g76", "mali_g78"])
def test_no_tiles_in_local_memory_that_is_ordinary_memory(name: str) -> None:
    g = GraphMaker()
    x = g.conv("c", g.input("x", 1, 32, 16, 16), 64)
    rows = g.add("flat", "Reshape", x, shape=(64, 256))
    y = g.add("product", "MatMul", rows, g.noise("w", 256, 96), trans_a=False, trans_b=False)
    device = load(name)
    assert not device.local_mem_dedicated
    program = plan(g.done(y), device, Memory.BUFFER)
    steps = [s for s in program.steps if isinstance(s, LaunchStep)]
    assert "matmul_register" in {s.entry for s in steps}
    for step in steps:
        source = program.sources[step.source]
        assert step.entry != "conv_split" or "-DSPLIT=1" in source.options
    dedicated = plan(g.done(y), dataclasses.replace(device, local_mem_dedicated=True), Memory.BUFFER)
    assert "matmul_tile" in {s.entry for s in dedicated.steps if isinstance(s, LaunchStep)}
