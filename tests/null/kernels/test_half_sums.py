"""fp16_fast: which kernels sum in half, and that their sources are OpenCL C with half arithmetic (checked by clang)."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opalite.ir import DeviceInfo, Graph, Node
from opalite.ir.device.device_family import HALF_TYPES, HALF_VECTORS
from opalite.ir.place import Memory
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.kernels.kernel import kernels_for
from opalite.kernels.kernel_sources import option_text, program_text
from opalite.kernels.launch import Launch
from opalite.kernels.node_in_layouts import place_node
from opalite.kernels.node_launches import launches_of, sums_in_half
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import optimise, place
from opalite.plan.emit_program import emit

from ...helpers.graphs import GraphMaker
from ..layout.test_image_plans import ADRENO, MALI, load, small_net

# No PoCL has half arithmetic on a CPU, but other drivers may: packs of sixteen are checked as if it had.
WIDE = dataclasses.replace(load("pocl_avx512"), fp16=True)
# NVIDIA has vectors of halves and no functions on them; clang has both, which half_math.cl would clash with.
BARE = load("nvidia_h200")
NVIDIA = dataclasses.replace(BARE, quirks=(*BARE.quirks, HALF_VECTORS))
DEVICES = {"adreno": ADRENO, "mali": MALI, "h200": NVIDIA, "cpu": WIDE}
CLANG = shutil.which("clang")


def nets() -> Iterator[Graph]:
    """Everything that multiplies: convolutions of every kind, with and without a chain behind, and products."""
    yield small_net()
    g = GraphMaker()
    x = g.input("x", 1, 8, 24, 24)
    relu = g.map("relu", lambda v: v.call("max", 0) * 2.0, g.conv("grouped", x, 12, group=4))
    few = g.conv("few", relu, 3)
    up_weights = g.noise("up.w", 12, 8, 2, 2)
    window = {"strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1, "output_padding": (0, 0)}
    up = g.add("up", "ConvTranspose", relu, up_weights, None, **window)
    deep = g.conv("deep", g.conv("strided", x, 64, strides=(2, 2)), 64)
    a, b = g.input("a", 2, 33, 48), g.input("b", 2, 48, 40)
    products = [
        g.add("both", "MatMul", a, b, trans_a=False, trans_b=False),
        g.add("fixed", "MatMul", a, g.noise("w", 48, 40), trans_a=False, trans_b=False),
        g.add("row", "MatMul", g.input("r", 1, 48), g.noise("v", 48, 40), trans_a=False, trans_b=False),
    ]
    yield g.done(few, up, deep, *products)


def marked(graph: Graph, precision: Precision) -> Graph:
    optimise(graph)
    set_precision(graph, PrecisionPolicy(precision))
    return graph


@pytest.mark.parametrize("memory", [Memory.BUFFER, Memory.IMAGE2D])
def test_products_and_windows_sum_in_half_and_nothing_else(memory: Memory) -> None:
    for precision in (Precision.FP16, Precision.FP16_FAST):
        graph = marked(small_net(), precision)
        place(graph, ADRENO, memory=memory)
        program = emit(graph, ADRENO)
        reports = {r.name: r for r in program.placement if r.op != "PlaceCast"}
        told = {name for name, r in reports.items() if "sums in half" in r.why}
        assert {r.op for r in reports.values() if r.name in told} <= {"Conv", "MatMul"}
        assert ("c1" in told, "head" in told) == (precision is Precision.FP16_FAST,) * 2
        halves = [s for s in program.sources if "-DACC_HALF=1" in s.options.split()]
        assert bool(halves) == (precision is Precision.FP16_FAST)
        assert all("-DSTORAGE=1" in s.options.split() for s in halves)


def test_what_a_policy_keeps_in_float32_is_summed_in_float() -> None:
    graph = small_net()
    optimise(graph)
    set_precision(graph, PrecisionPolicy(Precision.FP16_FAST, {"c1": "for the test"}))
    place(graph, MALI)
    reports = {r.name: r.why for r in emit(graph, MALI).placement if r.op == "Conv"}
    assert "sums in half" not in reports["c1"]
    assert "sums in half" in reports["c2"]


def half_launches(node: Node, device: DeviceInfo) -> Iterator[Launch]:
    """Launches with half sums of every kernel that accepts the node, in each of its layouts."""
    for kernel in kernels_for(node.op.name):
        if kernel.refuse(kernel.problem(node, device)) is not None:
            continue
        for binding in kernel.bindings(kernel.problem(node, device)):
            placed = place_node(node, binding)
            problem = kernel.problem(placed, device)
            launches = launches_of(kernel, problem, kernel.defaults(problem))
            found = [x for x in launches if x.defines.get("ACC_HALF")]
            assert bool(found) == sums_in_half(kernel, placed, device), kernel.name
            yield from (dataclasses.replace(x, source=x.source or kernel.source) for x in found)


def test_functions_on_halves_come_along_where_the_compiler_has_none() -> None:
    assert HALF_TYPES in BARE.quirks
    assert BARE.half_sums
    for device, own in ((BARE, True), (NVIDIA, False), (ADRENO, False)):
        assert device.half_functions != own
        launches = [
            launch
            for node in marked(small_net(), Precision.FP16_FAST).nodes
            if node.op.name in ("Conv", "MatMul")
            for launch in half_launches(node, device)
        ]
        assert launches
        assert all(("HALF_CHOICES(4)" in x.prelude) == own for x in launches)


@pytest.mark.skipif(CLANG is None, reason="clang is not installed")
@pytest.mark.parametrize("name", DEVICES)
def test_sources_with_half_sums_compile(name: str, tmp_path: Path) -> None:
    device = DEVICES[name]
    texts: dict[tuple[str, str], str] = {}
    kernels: set[str] = set()
    for graph in nets():
        for node in marked(graph, Precision.FP16_FAST).nodes:
            if node.op.name in ("Conv", "ConvTranspose", "MatMul"):
                for launch in half_launches(node, device):
                    texts[program_text(launch.source, launch.prelude), option_text(launch.defines)] = launch.entry
                    kernels.add(launch.source)
    assert len(kernels) >= 4, kernels
    assert CLANG is not None
    common = ["-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-Xclang", "-finclude-default-header", "-fsyntax-only"]
    for i, ((text, options), entry) in enumerate(texts.items()):
        path = tmp_path / f"{i}.cl"
        path.write_text(text)
        done = subprocess.run([CLANG, *common, *options.split(), path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{entry} {options}\n{done.stderr[:3000]}"
