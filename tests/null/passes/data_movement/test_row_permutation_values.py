"""Random chains of movements: what they come to as rows of a table is what they were one by one."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from opalite.ir import DeviceInfo, Graph, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ops.data_movement import Concat
from opalite.passes.pipeline import optimise
from opalite.passes.rewrite_driver import Context
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.plan.program import LaunchStep

from ....helpers.graphs import GraphMaker, check_same, feeds_for, run_graph

H200, POCL = (read_description(n) for n in ("nvidia_h200", "pocl_avx512"))


def rolled(g: GraphMaker, x: Value, axis: int, shift: int, name: str) -> Value:
    """What torch.roll(x, -shift, axis) is exported as."""
    rank, size = len(x.shape), x.shape[axis]
    parts = []
    for k, (start, count) in enumerate(((shift, size - shift), (0, shift))):
        starts = tuple(start if a == axis else 0 for a in range(rank))
        sizes = tuple(count if a == axis else n for a, n in enumerate(x.shape))
        parts.append(g.add(f"{name}_{k}", "Slice", x, starts=starts, sizes=sizes, steps=(1,) * rank))
    return g.add(name, "Concat", *parts, axis=axis)


def chain(g: GraphMaker, x: Value, rng: Random, count: int, name: str = "m") -> Value:
    """`count` movements, most of which leave the last axis whole."""
    for i in range(count):
        at, rank = f"{name}{i}", len(x.shape)
        match rng.randrange(8):
            case 0:
                perm = rng.sample(range(rank - 1), rank - 1)
                x = g.add(at, "Transpose", x, perm=(*perm, rank - 1))
            case 1:
                lead = math.prod(x.shape[:-1])
                divisors = [d for d in range(1, lead + 1) if lead % d == 0]
                first = rng.choice(divisors)
                x = g.add(at, "Reshape", x, shape=(first, lead // first, x.shape[-1]))
            case 2 if max(x.shape[:-1]) > 1:
                axis = rng.choice([a for a in range(rank - 1) if x.shape[a] > 1])
                x = rolled(g, x, axis, rng.randrange(1, x.shape[axis]), at)
            case 3:
                steps = [rng.choice((1, 1, 2)) for _ in x.shape[:-1]] + [1]
                starts = [rng.randrange((n + 1) // 2) if n > 1 else 0 for n in x.shape[:-1]] + [0]
                sizes = [-(-(n - s) // t) for n, s, t in zip(x.shape, starts, steps, strict=True)]
                x = g.add(at, "Slice", x, starts=tuple(starts), steps=tuple(steps), sizes=tuple(sizes))
            case 4:
                pads = [rng.choice((0, 0, 1)) for _ in range(2 * rank)]
                pads[rank - 1] = pads[-1] = 0
                x = g.add(at, "Pad", x, pads=tuple(pads), mode="constant", value=0.0)
            case 5:
                axis = rng.randrange(rank - 1)
                taken = np.array([rng.randrange(-x.shape[axis], x.shape[axis]) for _ in range(rng.randint(1, 4))])
                x = g.add(at, "Gather", x, g.const(f"{at}_i", taken), axis=axis)
            case 6:
                x = g.add(at, "Concat", chain(g, x, rng, 0, at), x, axis=rng.randrange(rank))
            case 7:
                x = g.add(at, "Reshape", x, shape=(*x.shape[:-1], 1, x.shape[-1]))
    return x


@pytest.mark.parametrize("seed", range(60))
def test_chains(seed: int) -> None:
    rng = Random(seed)
    g = GraphMaker()
    x = g.input("x", *(rng.randint(1, 5) for _ in range(rng.randint(1, 3))), rng.choice((8, 16, 20)))
    graph = g.done(chain(g, x, rng, rng.randint(2, 7)))
    feeds = feeds_for(graph)
    wanted = run_graph(graph, feeds)
    moves = sum(isinstance(n.op, Concat) for n in graph.nodes)
    optimise(graph, Context(check=True), H200)
    check_same(wanted, run_graph(graph, feeds), 0)
    assert len(graph.nodes) <= 3 or moves == 0 or any(n.op.name == "PermuteRows" for n in graph.nodes)


def window_block(g: GraphMaker, x: Value, shift: int, name: str, side: int = 4) -> Value:
    """A block of Swin Transformer with its attention left out: norm, roll, windows, product, all back, residual."""
    n, h, w, c = x.shape

    def product(at: str, v: Value, out: int) -> Value:
        weights = g.noise(f"{name}{at}_w", v.shape[-1], out)
        return g.add(f"{name}{at}", "MatMul", v, weights, trans_a=False, trans_b=False)

    def normal(at: str, v: Value) -> Value:
        scale = g.noise(f"{name}{at}_s", c)
        return g.add(f"{name}{at}", "Normalize", v, scale, None, kind="layer", epsilon=1e-5, axis=len(v.shape) - 1)

    y = normal("n", x)
    if shift:
        y = rolled(g, rolled(g, y, 1, shift, f"{name}h"), 2, shift, f"{name}v")
    y = g.add(f"{name}r", "Reshape", y, shape=(n, h // side, side, w // side, side, c))
    y = g.add(f"{name}t", "Transpose", y, perm=(0, 1, 3, 2, 4, 5))
    y = g.add(f"{name}q", "Reshape", y, shape=(n * (h // side) * (w // side), side * side, c))
    y = g.map(f"{name}e", "tanh", product("p", y, c))
    y = g.add(f"{name}k", "Reshape", y, shape=(n, h // side, w // side, side, side, c))
    y = g.add(f"{name}b", "Transpose", y, perm=(0, 1, 3, 2, 4, 5))
    y = g.add(f"{name}l", "Reshape", y, shape=(n, h, w, c))
    if shift:
        y = rolled(g, rolled(g, y, 1, h - shift, f"{name}i"), 2, w - shift, f"{name}j")
    x = g.map(f"{name}x", lambda a, b: a + b, x, y)
    z = product("m", g.map(f"{name}g", "tanh", product("f", normal("o", x), 2 * c)), c)
    return g.map(f"{name}y", lambda a, b: a + b, x, z)


def windows(g: GraphMaker, n: int, h: int, w: int) -> Graph:
    x = g.map("in", "tanh", g.input("x", n, h, w, 32))
    for i, shift in enumerate((0, 2, 0, 2)):
        x = window_block(g, x, shift, f"b{i}")
    return g.done(x)


@pytest.mark.parametrize("device", [H200, POCL], ids=["h200", "pocl"])
def test_windows_take_one_launch_a_block(device: DeviceInfo) -> None:
    graph = windows(GraphMaker(), 1, 8, 12)
    feeds = feeds_for(graph)
    wanted = run_graph(graph, feeds)
    optimise(graph, Context(check=True), device)
    check_same(wanted, run_graph(graph, feeds), 1e-5)
    program = plan(windows(GraphMaker(), 1, 8, 12), PlanOptions(), Knowledge(device)).program
    steps = [s for s in program.steps if isinstance(s, LaunchStep)]
    moves = [s.kernel for s in steps if s.kernel != "PlaceCastStream" and s.flops == 0]
    assert len(moves) <= 5, moves  # into the first windows, between blocks, and back at the end
