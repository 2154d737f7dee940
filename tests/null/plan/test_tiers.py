"""The generic tier has a few programs for all models, and the optimized tier uses none of them."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.ir import DeviceInfo, DType, Graph
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.symbols import Trace
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import all_kernels, kernels_for
from opalite.kernels.kernel_sources import option_text, program_text
from opalite.plan.generic_programs import generic_programs
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.plan.program import LaunchStep, Program
from opalite.run.model.background.plan_graph import plan_generic

from ...helpers.graphs import GraphMaker
from ...helpers.kernel_nodes import samples

DEVICES = [read_description(name) for name in description_names()]
GENERAL = {k.name for k in all_kernels() if k.tier == "generic"}
each_device = pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)


def program(graph: Graph, device: DeviceInfo, **options: Any) -> Program:
    return plan(graph, PlanOptions(**options), Knowledge(device)).program


def kernels(found: Program) -> set[str]:
    return {s.kernel for s in found.steps if isinstance(s, LaunchStep)}


def small(channels: int, size: int) -> Graph:
    """Convolutions of two kinds, a residual sum and a product."""
    g = GraphMaker()
    x = g.input("x", 1, channels, size, size + 2)
    a = g.map("relu", lambda v: v.call("max", 0.0).call("min", 6.0), g.conv("a", x, 2 * channels))
    b = g.conv("b", a, 2 * channels, 1)
    c = g.conv("c", a, 2 * channels, 5, group=2 * channels, strides=(2, 2))
    total = g.map("total", lambda u, v: u * v.call("sigmoid") + 0.25, a, b)
    flat = g.add("flat", "Reshape", total, shape=(2 * channels, size * (size + 2)))
    return g.done(g.add("y", "MatMul", flat, g.noise("w", size * (size + 2), 10), trans_a=False, trans_b=False), c)


@each_device
def test_models_share_their_programs(device: DeviceInfo) -> None:
    found = [program(small(*sizes), device, tier="generic") for sizes in ((3, 8), (16, 31))]
    assert kernels(found[0]) <= GENERAL
    assert set(found[0].sources) == set(found[1].sources)
    assert len(found[0].sources) == 3


@each_device
@pytest.mark.parametrize("memory", ["auto", "buffer", "image"])
def test_the_special_tier_picks_no_general_kernel(device: DeviceInfo, memory: str) -> None:
    assert not kernels(program(small(16, 31), device, memory=memory)) & GENERAL


@each_device
def test_clamps_are_arguments_and_nothing_else_is_fused(device: DeviceInfo) -> None:
    found = program(small(3, 8), device, tier="generic")
    first, *_ = [r for r in found.placement if r.op == "Conv"]
    assert (first.kernel, first.epilogue) == ("ConvGeneric", "max($0, 0.0:f32); min(%0, 6.0:f32)")
    assert any(r.kernel == "ElementwiseGeneric" for r in found.placement)


@each_device
def test_networks_channels_last_keep_the_transposes_at_their_ends(device: DeviceInfo) -> None:
    """Depthwise convolutions stay channels first, for which there is a general kernel."""
    g = GraphMaker()
    x = g.input("x", 1, 12, 14, 8)
    for name, group in (("a", 1), ("b", 8), ("c", 1)):
        first = g.add(f"{name} first", "Transpose", x, perm=(0, 3, 1, 2))
        last = g.add(f"{name} last", "Transpose", g.conv(name, first, 8, group=group), perm=(0, 2, 3, 1))
        x = g.map(f"{name} sum", lambda u, v: u + v.call("sigmoid"), last, x)
    found = program(g.done(x), device, tier="generic")
    assert kernels(found) <= GENERAL
    assert sum(s.kernel == "TransposeGeneric" for s in found.steps if isinstance(s, LaunchStep)) == 2


@each_device
def test_a_special_kernel_takes_what_no_general_one_does(device: DeviceInfo) -> None:
    """On row-major tensors, so that nothing is cast between the two."""
    g = GraphMaker()
    x = g.conv("a", g.input("x", 1, 8, 16, 16), 8)
    y = g.add("y", "Cumulative", x, kind="sum", axis=2, exclusive=False, reverse=False)
    found = program(g.done(y), device, tier="generic")
    assert len(kernels(found) & GENERAL) == 1
    (special,) = [r for r in found.placement if r.op == "Cumulative"]
    assert special.kernel not in GENERAL
    assert not [r for r in found.placement if r.op == "PlaceCast" and r.target == "opencl"]


@each_device
def test_views_stay_row_major_between_the_host_and_the_device(device: DeviceInfo) -> None:
    """Integers of open sizes that the host turns into floats: nothing is packed for their view, or unpacked after it.

    At the sizes at hand that would be free; at others it takes a program, which the first run would wait for.
    """
    g, trace = GraphMaker(), Trace()
    n, channels = (trace.symbol(size, name) for size, name in ((2, "n"), (32, "c")))
    x = g.input("x", n, channels, 1, dtype=DType.INT64)
    wide = g.add("wide", "Reshape", x, shape=(n, channels, 1, 1))
    y = g.map("y", lambda v: v.cast(DType.FLOAT32), wide)
    graph = g.done(wide, y)
    graph.trace = trace
    found = plan_generic(graph, PlanOptions(tier="generic"), device)
    known = {(s.text, s.options) for s in generic_programs(device)}
    assert {(s.text, s.options) for s in found.program.sources} <= known
    assert found.fallbacks == {"host: Elementwise": 1}


@each_device
def test_the_programs_of_a_device_are_known_ahead(device: DeviceInfo) -> None:
    """Whatever a general kernel launches is one of them, and all of them together are few."""
    known = {(s.text, s.options) for s in generic_programs(device)}
    sums_bytes = device.byte_dots == "fours"
    assert len(known) == 17 + sums_bytes
    lowered = set()
    for op, attrs, arrays, const in samples():
        node = make_node(op, attrs, arrays, const=const)
        for kernel in kernels_for(op):
            if kernel.tier != "generic" or kernel.refuse(kernel.problem(node, device)) is not None:
                continue
            problem = kernel.problem(node, device)
            for launch in kernel.launch(problem, kernel.defaults(problem)):
                text = program_text(launch.source or kernel.source, launch.prelude)
                assert (text, option_text(launch.defines)) in known, kernel.name
                lowered.add(kernel.name)
    missing = {"PlaceCastGeneric"} | (set() if sums_bytes else {"MatmulVnniGeneric"})  # no sample is held in half
    missing.add("NmsRoundsGeneric" if device.is_cpu else "NmsHeapGeneric")
    assert lowered == GENERAL - missing
