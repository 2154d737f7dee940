"""Each operator with an image kernel, between two convolutions, is planned in images on an Adreno."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from opalite.cost.cost_tables import Windows
from opalite.ir import Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_info import DeviceInfo
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.kernels.kernel import Params, kernels_for
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import optimise, place
from opalite.plan.emit_program import emit
from opalite.plan.program import LaunchStep, TexelsArg

from ...helpers.graphs import GraphMaker

ADRENO = read_description("adreno_640")
C, SIDE = 16, 24
Make = Callable[[GraphMaker, Value], Value]


OPERATORS: dict[str, Make] = {
    "ConvTranspose": lambda g, x: g.add(
        "op",
        "ConvTranspose",
        x,
        g.noise("w", C, C, 2, 2),
        strides=(2, 2),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        group=1,
        output_padding=(0, 0),
    ),
    "Transpose": lambda g, x: g.add("op", "Transpose", x, perm=(0, 1, 3, 2)),
    "Slice": lambda g, x: g.add("op", "Slice", x, starts=(0, 4, 2, 1), steps=(1, 1, 1, 1), sizes=(1, 8, 18, 22)),
    "Pad": lambda g, x: g.add("op", "Pad", x, pads=(0, 0, 1, 2, 0, 0, 3, 1), mode="constant", value=0.0),
    "Concat": lambda g, x: g.add("op", "Concat", x, g.map("other", "sigmoid", x), axis=1),
    "instance norm": lambda g, x: g.add(
        "op", "Normalize", x, g.noise("scale", C), g.noise("shift", C), kind="instance", epsilon=1e-5
    ),
    "softmax over channels": lambda g, x: g.add("op", "Softmax", x, axis=1, log=False),
    "mean": lambda g, x: g.add("op", "Reduce", x, kind="mean", axes=(2, 3), keepdims=True),
}


ROW_OPERATORS: dict[str, Make] = {
    "layer norm": lambda g, x: g.add(
        "op", "Normalize", x, g.noise("scale", C), g.noise("shift", C), kind="layer", epsilon=1e-5, axis=2
    ),
    "softmax": lambda g, x: g.add("op", "Softmax", x, axis=2, log=False),
    "pad": lambda g, x: g.add("op", "Pad", x, pads=(0, 1, 0, 0, 3, 0), mode="constant", value=0.0),
    "sum": lambda g, x: g.map("op", "add", x, g.map("other", "sigmoid", x)),
}


def kernels(make: Make, device: DeviceInfo) -> list[str]:
    """Kernels of a convolution, the operator and another convolution, in order, in half precision."""
    g = GraphMaker()
    x = g.conv("first", g.input("x", 1, C, SIDE, SIDE), C)
    made = make(g, x)
    return planned(g, g.conv("last", made, C), device)


def row_kernels(make: Make, device: DeviceInfo) -> list[str]:
    """The same between two products of rows by constants."""
    g = GraphMaker()
    product = {"trans_a": False, "trans_b": False}
    x = g.add("first", "MatMul", g.input("x", 1, 512, C * 8), g.noise("w1", C * 8, C), **product)
    return planned(g, g.add("last", "MatMul", make(g, x), g.noise("w2", C, C * 8), **product), device)


def planned(g: GraphMaker, y: Value, device: DeviceInfo) -> list[str]:
    graph = g.done(y)
    optimise(graph)
    set_precision(graph, PrecisionPolicy(Precision.FP16))
    place(graph, device, memory=None)
    program = emit(graph, device)
    return [s.kernel for s in program.steps if isinstance(s, LaunchStep)]


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_in_images(name: str) -> None:
    found = kernels(OPERATORS[name], ADRENO)
    assert len(found) >= 3
    inner = [k for k in found if not k.startswith("PlaceCast")]
    assert all(k.startswith("Image") for k in inner), found
    assert len(found) - len(inner) <= 2, "casts at the input and at the output alone"


@pytest.mark.parametrize("name", ROW_OPERATORS)
def test_operator_on_rows_is_in_images(name: str) -> None:
    inner = [k for k in row_kernels(ROW_OPERATORS[name], ADRENO) if not k.startswith("PlaceCast")]
    assert all(k.startswith("Image") for k in inner), inner


@pytest.mark.parametrize("rows", [1, 7, 128])
def test_low_bit_weights_are_read_as_texels(rows: int) -> None:
    """Of one row and of many, between operators on images; one copy serves all kernels of a matrix."""
    g = GraphMaker()
    q = g.const("q", g.rng.integers(0, 16, (256, 512)).astype(np.uint8))
    scale = g.const("s", g.rng.random((256, 16)).astype(np.float32))
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32}
    y = g.add("first", "QuantizedMatMul", g.input("x", 1, rows, 512), q, scale, None, **attrs)
    graph = g.done(g.add("last", "Softmax", y, axis=2, log=False))
    optimise(graph)
    set_precision(graph, PrecisionPolicy(Precision.FP16))
    place(graph, ADRENO, memory=None)
    program = emit(graph, ADRENO)
    step = next(s for s in program.steps if isinstance(s, LaunchStep) and "Quantized" in s.kernel)
    (texels,) = (a for a in step.args if isinstance(a, TexelsArg))
    assert program.weights[texels.slot].nbytes == 256 * 512 // 2
    assert "-DTEXELS=1" in program.sources[step.source].options
    assert "; asks for full waves" in next(r.why for r in program.placement if r.kernel == step.kernel)


def test_parts_of_a_row_stay_views() -> None:
    """A decoder's q, k and v of one token: a slice of an image is a launch, one of a buffer is none."""
    g = GraphMaker()
    q = g.const("q", g.rng.integers(0, 16, (768, 512)).astype(np.uint8))
    scale = g.const("s", g.rng.random((768, 16)).astype(np.float32))
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32}
    joint = g.add("first", "QuantizedMatMul", g.input("x", 1, 1, 512), q, scale, None, **attrs)
    parts = [
        g.add(f"part{i}", "Slice", joint, starts=(0, 0, 256 * i), steps=(1, 1, 1), sizes=(1, 1, 256)) for i in range(3)
    ]
    found = planned(g, g.map("last", lambda a, b, c: a * b + c, *parts), ADRENO)
    assert "QuantizedGemvGpu" in found
    assert not any("Slice" in k for k in found), found


def test_buffers_where_images_do_not_pay() -> None:
    mali = read_description("mali_g76")
    assert not any(k.startswith("Image") for k in kernels(OPERATORS["Concat"], mali))


def test_texture_caches_count_in_estimates() -> None:
    """An Adreno's images are expected to be faster than its buffers, and the estimates say by how much."""
    assert Windows.of(ADRENO).texture_gain > 1
    slower = dataclasses.replace(ADRENO, family="generic")
    assert not slower.prefers_images


def test_no_tiles_in_local_memory_that_is_global_memory() -> None:
    """Mali: tiles of a convolution, and parts of its sums, would go through global memory twice."""
    mali = read_description("mali_g76")
    assert not mali.local_mem_dedicated

    def chosen(device: DeviceInfo) -> tuple[str, Params]:
        g = GraphMaker()
        graph = g.done(g.conv("c", g.input("x", 1, 64, 14, 14), 256, kernel=1))
        optimise(graph)
        place(graph, device)
        node = next(n for n in graph.nodes if n.op.name == "Conv")
        assert node.chosen is not None
        refusals = node.chosen.refusals
        assert ("ConvGemmLocal" in refusals) == (not device.local_mem_dedicated), refusals
        kernel = next(k for k in kernels_for("Conv") if k.name == "ConvSplitK")
        return node.chosen.option.kernel.name, kernel.defaults(kernel.problem(node, device))

    assert chosen(mali)[1]["SPLIT"] == 1
    assert chosen(dataclasses.replace(mali, local_mem_dedicated=True))[0]


@pytest.mark.parametrize(
    ("channels", "group", "why"),
    [
        (34, 17, "17 groups would have to be merged to fill texels"),
        (8, 1, ""),
        (2048, 1, "its filter would be an image of 2048×2048 texels; the device allows 1024×16384"),
    ],
)
def test_filters_that_images_do_not_hold(channels: int, group: int, why: str) -> None:
    device = dataclasses.replace(read_description("adreno_640"), image2d_max=(1024, 16384))
    g = GraphMaker()
    g.conv("c", g.input("x", 1, channels, 2, 2), channels, 2, 0, group=group)
    (kernel,) = (k for k in kernels_for("Conv") if k.name == "ImageConv")
    assert (kernel.refuse(kernel.problem(g.graph.nodes[0], device)) or "") == why


def test_a_concat_reads_at_most_eight_images() -> None:
    (kernel,) = (k for k in kernels_for("Concat") if k.name == "ImageConcat")
    for count in (8, 9):
        g = GraphMaker()
        g.add("y", "Concat", *(g.input(f"x{i}", 1, 4, 2, 2) for i in range(count)), axis=1)
        why = kernel.refuse(kernel.problem(g.graph.nodes[0], read_description("adreno_640")))
        assert (why is None) == (count == 8)
