"""Networks written channels last keep a Transpose at their input and one at their output, on every kind of device."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.ir import Graph, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.passes.pipeline import optimise, place
from opalite.plan.emit_program import emit
from opalite.plan.program import LaunchStep

from ...helpers.graphs import GraphMaker

DEVICES = ("pocl_avx512", "nvidia_h200", "adreno_640", "mali_g76", "intel_uhd_630")
POOL: dict[str, Any] = {"kind": "max", "kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
POOL |= {"ceil_mode": False, "count_include_pad": False, "p": 2, "with_indices": False, "storage_order": 0}
RESIZE: dict[str, Any] = {
    "mode": "linear",
    "coordinate": "half_pixel",
    "nearest_mode": "floor",
    "cubic_a": -0.75,
    "roi": None,
}
RESIZE |= {"exclude_outside": False, "extrapolation": 0.0, "antialias": False}


def channels_last_net() -> Graph:
    """A network for pictures [N,H,W,C]: strides, a wider residual, a slope for each channel, and a skip connection."""
    g = GraphMaker()

    def first(x: Value) -> Value:
        return g.add(f"{x.name}f", "Transpose", x, perm=(0, 3, 1, 2))

    def last(x: Value) -> Value:
        return g.add(f"{x.name}l", "Transpose", x, perm=(0, 2, 3, 1))

    def conv(name: str, x: Value, channels: int, **attrs: Any) -> Value:
        return last(g.conv(name, first(x), channels, **attrs))

    def prelu(name: str, x: Value) -> Value:
        slope = g.noise(f"{name}.s", 1, 1, x.shape[-1])
        return g.map(name, lambda v, s: v.call("max", 0) + v.call("min", 0) * s, x, slope)

    x = g.input("x", 1, 16, 24, 3)
    a = prelu("a", conv("c0", x, 8))
    wide = prelu("b", conv("c1", conv("d1", a, 8, group=8, strides=(2, 2)), 16))
    small = last(g.add("pool", "Pool", first(a), **POOL))
    residual = g.add("pad", "Pad", small, pads=(0, 0, 0, 0, 0, 0, 0, 8), mode="constant", value=0)
    total = g.map("sum", lambda v, w: (v + w).call("max", 0), wide, residual)
    sizes = {"sizes": (1, 16, 24, 16), "scales": (1.0, 2.0, 2.0, 1.0)}
    joined = g.add("join", "Concat", g.add("up", "Resize", total, **sizes, **RESIZE), a, axis=3)
    gate = g.add("gate", "Reduce", joined, kind="mean", axes=(1, 2), keepdims=True)
    scaled = g.map("scaled", lambda v, w: v * w, joined, g.map("act", lambda v: v.call("tanh"), conv("g", gate, 24)))
    return g.done(g.map("y", lambda v: v.call("tanh"), conv("c2", scaled, 4)))


@pytest.mark.parametrize("name", DEVICES)
def test_transposes_are_left_at_both_ends_only(name: str) -> None:
    device = read_description(name)
    graph = channels_last_net()
    optimise(graph, device=device)
    place(graph, device, memory=None)
    launches = [s for s in emit(graph, device).steps if isinstance(s, LaunchStep)]
    assert sum("Transpose" in s.kernel for s in launches) == 2, [s.kernel for s in launches]
